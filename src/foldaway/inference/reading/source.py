"""What an outcome is read from, and how."""

from __future__ import annotations

from typing import NamedTuple

from foldaway.plan import Outcome, Plan
from foldaway.plan.vocabulary import ESTIMATORS
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.histogram import Histogram
from foldaway.tallies.sums import Sums


class Source(NamedTuple):
    """The tallies, and the question to them.

    Attributes:
        plan: The plan.
        outcome: The outcome.
        sums: Sums of the values.
        cases: The moments that the sums came from, while the trial is rich.
        estimator: Which of the outcome's estimators.
        by_group: Whether the error comes from groups; if not, records are taken as independent.
        first_order: Whether nothing of second order is known of records: the sums are those of devices, or released.
        strata: The same by stratum, where units were randomised within strata; the arms of a stratum side by side.
        histogram: Of the outcome's bins, if it has some.
        recentred: Whether adjusted levels are those at the covariates' overall means, which no difference depends on.
    """

    plan: Plan
    outcome: Outcome
    sums: Sums
    cases: CompleteCases | None
    estimator: str
    by_group: bool
    first_order: bool = False
    recentred: bool = True
    strata: Sums | None = None
    histogram: Histogram | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """Where the outcome's values stand."""
        return self.plan.places(self.outcome)

    @property
    def adjusts(self) -> bool:
        """Whether the estimator makes use of the covariates."""
        return ESTIMATORS[self.estimator].adjusts
