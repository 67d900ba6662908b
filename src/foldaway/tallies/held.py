"""What a trial holds, as others see it: whatever it is, they need not ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from foldaway.keeping.cohort import Census
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.histogram import Histogram
from foldaway.tallies.moments import Arms
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.sums import Sums


class Held(Protocol):
    """The tallies of a trial, under its plan. A value: folding and adding give a new one."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def n(self) -> int:
        """The number of records."""

    @property
    def counts(self) -> list[int]:
        """The number of records, by arm."""

    @property
    def size(self) -> int:
        """How many numbers are kept, whatever the number of records."""

    @property
    def arms(self) -> Arms | None:
        """Moments up to the fourth order, by arm; None where the plan keeps none."""

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """For each of the plan's bins, records by arm, group and bin."""

    @property
    def fitted(self) -> CompleteCases | None:
        """The moments by group that coefficients are fitted to; None where none are held, or these are fixed."""

    @property
    def unfixed(self) -> bool:
        """Whether coefficients are still to be fixed, and what is held has another form than what will be kept."""

    @property
    def released(self) -> bool:
        """Whether nothing is left but sums with noise."""

    def plain(self) -> Sums | None:
        """Sums of the outcomes; None where only moments by arm are held."""

    def census(self) -> Census:
        """How many stand behind the tallies."""

    def mean_squares(self) -> Floats:
        """About the mean square of each column, over all records."""

    def kept(self) -> dict[str, int]:
        """How many numbers are kept, by part."""

    def fold(self, batch: Batch) -> Held:
        """Take a batch in."""

    def __add__(self, other: Any) -> Held:
        """Both sets of records, under one plan."""

    def turned(self, plan: Plan, places: Sequence[int]) -> Held:
        """The same under a plan that has its arms in another order: at these places."""

    def fixed(self, predictor: Predictor | None, without: Floats | None = None, why: str = "") -> Held:
        """The same records in the form that is kept, with these coefficients if they were not fixed yet.

        Args:
            predictor: None if outcomes are not adjusted.
            without: See `predictor.lean`.
            why: Why they are not.
        """

    def pooled(self) -> Held:
        """With levels joined that too few units have for what is kept, or told."""

    def state(self) -> Any:
        """What is kept, or exchanged between workers."""
