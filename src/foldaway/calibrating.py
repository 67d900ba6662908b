"""Calibration: coefficients from records of before the trial, for its plan.

Earlier records need no arm, no unit and no secret key. The same coefficients in the plan of every shard, server and
site make adjusted outcomes add up, and with them a trial keeps sums from its first record.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from foldaway.effects import Effects
from foldaway.errors import EstimateError, PlanError
from foldaway.inference.adjusting import fit_starts
from foldaway.plan import Coefficients, Plan, Privacy
from foldaway.plan.vocabulary import SUMS
from foldaway.records.columns import columns_of
from foldaway.records.faults import FaultyBatch
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.products import read_products
from foldaway.trial import Trial

LEAST = 2000
"""Records below which coefficients are not told: a plan is for everyone to read."""


class Calibration:
    """Earlier records, folded away as those of a trial are.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"])
        >>> x = np.arange(2500) % 7
        >>> calibration = Calibration(plan)
        >>> calibration.fold({"x": x, "y": 2 * x + np.arange(2500) % 2})
        >>> calibration.plan().coefficients.slopes
        {'y': {'x': 2.0}}
    """

    def __init__(self, plan: Plan) -> None:
        if not plan.covariates or plan.keeps != SUMS:
            raise PlanError("coefficients are for plans with `covariates` that keep sums; this one needs none.")
        self._plan = plan
        without = dict.fromkeys(("unit", "cluster", "coefficients"))
        self._trial = Trial(_bare(plan, records_per_unit="many", **without))
        self._summed: CompleteCases | None = None

    @property
    def bare(self) -> Plan:
        """What earlier records are folded under: the plan without what only a trial has."""
        return self._trial.plan

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [*self._plan.covariates, *self._plan.measured, *([self._plan.weight] if self._plan.weight else [])]

    def fold(self, data: Any, *, text: bool = False, unreadable: int = 0) -> None:
        """Take earlier records in: as `Trial.fold`, but without arms and units."""
        columns, n, others = columns_of(data, self.columns)
        arm = {self._plan.arm: np.full(n, self._plan.control)}
        self._trial.fold({**columns, **arm}, text=text, unreadable=unreadable + others)

    def fold_products(self, answer: Any) -> None:
        """Take in the sums of products of earlier records that stayed in their database: these are then all there are.

        Raises:
            RecordError: Some records are faulty, and the plan does not drop these.
        """
        self._summed, faults = read_products(answer, self.bare)
        if faults and not self._plan.drops:
            raise FaultyBatch(faults, self._summed.n + faults.total)

    def plan(self) -> Plan:
        """The plan with the coefficients that these records give, to three digits.

        Raises:
            EstimateError: They are too few.
        """
        cases = self._trial.tallies.fitted if self._summed is None else self._summed
        assert cases is not None
        if cases.n < LEAST:
            raise EstimateError(
                f"coefficients are told from {LEAST:,} records on, and there are {cases.n:,}: they would say too much "
                "about those few. Without them a trial finds its own."
            )
        start = fit_starts(cases, self._plan)
        if start.predictor is None:
            raise EstimateError(start.why)
        names = self._plan.predictors[1:]
        center, slopes, _ = start.predictor
        table = Coefficients(
            center=dict(zip(names, center.tolist(), strict=True)),
            slopes={
                value.name: dict(zip(names, row.tolist(), strict=True))
                for value, row in zip(self._plan.values, slopes, strict=True)
            },
        )
        return msgspec.structs.replace(self._plan, coefficients=table)


def calibrated(plan: Plan, records: Any) -> Plan:
    """The plan with coefficients from earlier records: see `Plan.calibrated`."""
    calibration = Calibration(plan)
    calibration.fold(records)
    return calibration.plan()


class Earlier:
    """Earlier records, folded away under a trial's plan, to see how large the trial must be.

    Args:
        plan: The plan.
        has_arms: Whether the records name arms; if not, each is given that which the plan would assign its unit to.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> earlier = Earlier(plan, has_arms=False)
        >>> earlier.fold({"y": np.arange(2500) % 7})
        >>> round(earlier.effects()[0].control_level)
        3
    """

    def __init__(self, plan: Plan, *, has_arms: bool) -> None:
        self._has_arms = has_arms
        self._random = np.random.default_rng(1)
        # Under a key of their own: they are none of the trial's, nothing of them is kept, and whoever asks again gets
        # the same answer.
        self._trial = Trial(_bare(plan, received=None), key=bytes(16))

    @property
    def plan(self) -> Plan:
        """What they are folded under: the plan without what only a trial has."""
        return self._trial.plan

    def fold(self, data: Any, *, text: bool = False, unreadable: int = 0) -> None:
        """Take earlier records in."""
        plan = self._trial.plan
        if self._has_arms:
            self._trial.fold(data, text=text, unreadable=unreadable)
            return
        names = [*plan.measured, *plan.covariates, *(name for name in (plan.unit, plan.weight) if name)]
        columns, n, others = columns_of(data, names)
        if plan.unit is None:
            arms = list(self._random.choice(list(plan.arms), n, p=list(plan.arms.values())))
        else:
            units = columns[plan.unit]
            ids = units if isinstance(units, list) else units.to_pylist()
            arms = [plan.control if unit is None else plan.assign(str(unit)) for unit in ids]
        self._trial.fold({**columns, plan.arm: arms}, text=text, unreadable=unreadable + others)

    def effects(self) -> Effects:
        """What the records show."""
        return self._trial.read()


def _bare(plan: Plan, **without: Any) -> Plan:
    """The plan without what only a trial has, nor the levels of columns that are only its segments."""
    without |= dict.fromkeys(("federated", "release", "strata"))
    return msgspec.structs.replace(plan, **without, privacy=Privacy(), segments=())
