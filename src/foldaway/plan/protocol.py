"""What a trial's protocol says beside the analysis: the estimand, and what happened before there were records."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from msgspec import Meta

from foldaway.errors import PlanError, instead_of
from foldaway.plan.part import Fixed, Part

Text = Annotated[str, Meta(min_length=1, max_length=2_000, description="text")]
People = Annotated[int, Meta(ge=0, le=10**9, description="a whole number from 0 to 10^9")]
Reasons = Annotated[
    Mapping[str, People],
    Meta(description='a table with a number for each reason, as in `{"did not consent" = 210}`'),
]


class Estimand(Part, frozen=True, kw_only=True):
    """What the trial estimates, by the attributes of ICH E9(R1). foldaway prints them and reads nothing from them.

    Attributes:
        population: Whom the effect is about.
        treatment: What is compared, and what else may be taken.
        intercurrent_events: What happens to outcomes after a switch of treatment, a rescue or a death.
        summary: What is compared between arms. The variable itself is the plan's outcomes.

    Example:
        >>> Estimand(population="adults", summary="difference in means").attributes
        {'Population': 'adults', 'Summary measure': 'difference in means'}
    """

    TABLE: ClassVar[str] = "estimand"

    population: Text | None = None
    treatment: Text | None = None
    intercurrent_events: Text | None = None
    summary: Text | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """Those that the plan gives, by their usual names."""
        names = {
            "Population": self.population,
            "Treatment": self.treatment,
            "Intercurrent events": self.intercurrent_events,
            "Summary measure": self.summary,
        }
        return {name: text for name, text in names.items() if text is not None}


class Flow(Part, frozen=True, kw_only=True):
    """Who was assessed before there were records, for the flow diagram of CONSORT. Even an empty table asks for it.

    Attributes:
        assessed: How many were assessed for eligibility.
        excluded: How many of them were not randomised, by reason.

    Example:
        >>> Flow(assessed=1204, excluded={"did not consent": 210}).left
        994
    """

    TABLE: ClassVar[str] = "flow"

    assessed: People | None = None
    excluded: Reasons = Fixed()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the counts from a TOML file: the table's settings, or a table ``[flow]`` of them.

        Raises:
            PlanError: The file cannot be read, or its counts are wrong.
        """
        with (
            instead_of(OSError, lambda error: PlanError(f"cannot read {path}: {error.strerror}.")),
            instead_of(ValueError, PlanError(f"{path} is not TOML.")),
        ):
            written = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return cls.of(written.get("flow", written))

    @property
    def left(self) -> int | None:
        """How many could be randomised, if it is said how many were assessed."""
        return None if self.assessed is None else self.assessed - sum(self.excluded.values())

    def faults(self) -> Iterator[str]:
        """What is wrong with the counts."""
        if self.left is not None and self.left < 0:
            yield "`flow.excluded` adds up to more than `flow.assessed`: correct one of them."
