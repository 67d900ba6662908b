"""The settings of a plan and what follows from them; `Plan` documents, checks, reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from foldaway.plan.bootstrap import Bootstrap
from foldaway.plan.settings import Fixed
from foldaway.plan.vocabulary import Leverage, ModeName


class Settings(msgspec.Struct, frozen=True, kw_only=True, eq=False, forbid_unknown_fields=True, omit_defaults=True):
    """Every setting with its type and default."""

    name: str
    arm: str
    arms: Mapping[str, float]
    outcomes: Sequence[str]
    covariates: Sequence[str] = ()
    levels: Mapping[str, Sequence[str]] = Fixed()
    unit: str | None = None
    weight: str | None = None
    confidence: float = 0.95
    complete_units: bool = False
    on_fault: Literal["refuse", "drop"] = "refuse"
    estimators: Sequence[str] = ()
    errors: Sequence[str] = ()
    anytime_n: int = 10_000
    bootstrap: Bootstrap | int | None = None
    cohort: int = 100
    max_wait: float | None = None
    min_per_arm: int = 10
    remainder: Literal["leave_out", "include"] = "leave_out"
    federated: ModeName | None = None
    reply_deadline: float = 3_600.0
    reply_share: float = 1.0
    retention: float = 2_592_000.0
    leverage: Leverage | None = None

    @property
    def control(self) -> str:
        """The arm that every other arm is compared with: the first."""
        return next(iter(self.arms))

    @property
    def resampling(self) -> Bootstrap | None:
        """The bootstrap, spelled out."""
        return Bootstrap(self.bootstrap) if isinstance(self.bootstrap, int) else self.bootstrap

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a row's columns: intercept, covariates (levels but the first), outcomes."""
        return (*self.regressors, *self.outcomes)

    @property
    def regressors(self) -> tuple[str, ...]:
        """The names of the intercept and the covariates' columns."""
        names = ["1"]
        for covariate in self.covariates:
            levels = self.levels.get(covariate)
            names += [f"{covariate}[{level}]" for level in levels[1:]] if levels else [covariate]
        return tuple(names)
