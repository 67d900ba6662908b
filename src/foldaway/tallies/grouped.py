"""What rich and lean trials share: what lies beside their moments or sums by group.

Quantiles have histograms, the same whether the trial is rich or lean. A segment is the same once more, with an arm for
each arm and level. So are strata, with an arm for each arm and stratum; there records weigh as the plan says, and not
1/π besides. A segment has its own strata, so that its levels are compared within them too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.cohort import Census
from foldaway.keeping.state import Array
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.tallies.baseline import BaselineTallies
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.group_folding import fold_histogram
from foldaway.tallies.histogram import Histogram
from foldaway.tallies.moments import Arms
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.segment import SegmentTallies
from foldaway.tallies.sums import Sums, SumsShape


class GroupedState(msgspec.Struct):
    """What is kept, or exchanged between workers while it is rich.

    Attributes:
        moments: Moments by group, of a trial that is not lean yet.
        sums: Sums by group, of one that is.
        center: Of a predictor that was found during the trial.
        slopes: Likewise.
        why: Why outcomes are not adjusted, if they are not and could be.
        released: The sums with noise, once these are all that there is.
    """

    moments: Any = None
    sums: Any = None
    center: Array | None = None
    slopes: Array | None = None
    why: str = ""
    released: Any = None
    segments: list[tuple[list[str], Any]] = []
    strata: Any = None
    histograms: list[Any] = []
    baseline: Any = msgspec.UNSET  # which is left out: states of before have none
    levels: Any = msgspec.UNSET  # of the baseline, likewise

    @property
    def of_none(self) -> bool:
        """Whether it is of no records."""
        return self.moments is None and self.sums is None


class StateBeside(GroupedState):
    """The same beside moments by arm, up to the fourth order, of a plan that keeps them."""

    arms: Any = None


@dataclass(frozen=True, slots=True)
class Grouped(ABC):
    """What is held by group: `Rich` or `Lean`.

    Attributes:
        plan: The plan.
        histograms: For each of the plan's bins, records by arm, group and bin.
        segments: The same by segment, in the order of the plan.
        strata: The same by stratum, within which units were randomised; the arms of a stratum side by side. Of the
            histograms those of exits, and none within a segment.
        arms: Moments up to the fourth order, by arm; None where the plan keeps none.
        baseline: What is held for the baseline table; None where the plan has none, and of segments and strata.
    """

    plan: Plan
    _: KW_ONLY
    histograms: tuple[Histogram, ...] = ()
    segments: tuple[SegmentTallies[Grouped], ...] = ()
    strata: Grouped | None = None
    arms: Arms | None = None
    baseline: BaselineTallies | None = None

    @property
    def predictor(self) -> Predictor | None:
        """What makes ỹ of a record, once that is fixed."""
        return None

    @property
    def why(self) -> str:
        """Why outcomes are not adjusted, in a sentence without a capital; empty if they are, or are to be."""
        return ""

    @property
    def released(self) -> bool:
        """Whether the sums are those of a release, with noise."""
        return False

    @property
    def cases(self) -> CompleteCases | None:
        """Moments by group, while the trial is rich."""
        return None

    @property
    def fitted(self) -> CompleteCases | None:
        """Those that coefficients are fitted to: of the strata, where units were randomised within some.

        There covariates and outcomes vary within arms and strata, and what lies between strata is left out.
        """
        return self.cases if self.strata is None else self.strata.cases

    @property
    def unfixed(self) -> bool:
        """Whether coefficients are still to be fixed."""
        return self.cases is not None

    @property
    @abstractmethod
    def records(self) -> Floats:
        """The number of records, by arm and group."""

    @abstractmethod
    def plain(self) -> Sums:
        """Sums of the outcomes, whatever else is held."""

    @property
    @abstractmethod
    def shape(self) -> SumsShape:
        """Of the sums that are kept once the trial is lean."""

    @abstractmethod
    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""

    @abstractmethod
    def of_arms(self, places: Sequence[int]) -> Self:
        """The same of the arms at these places, an empty one where a place is -1; segments and moments are left out."""

    @abstractmethod
    def fixed(self, predictor: Predictor | None, without: Floats | None = None, why: str = "") -> Grouped:
        """The same records as sums, with this predictor if none was fixed yet: see `Held.fixed`."""

    @abstractmethod
    def state(self) -> GroupedState:
        """What is kept."""

    @abstractmethod
    def _joined(self, other: Grouped) -> Grouped:
        """Both sets of records, of which neither is empty."""

    @property
    def n(self) -> int:
        """The number of records."""
        return sum(self.counts)

    @property
    def counts(self) -> list[int]:
        """The number of records, by arm."""
        return [max(round(n), 0) for n in self.records.sum(axis=1).tolist()]

    @property
    def size(self) -> int:
        """How many numbers are kept once the trial is lean, whatever the number of records."""
        return sum(self.kept().values())

    def kept(self) -> dict[str, int]:
        """The same by array of the sums, and by part that is kept besides."""
        beside = {
            "segments": sum(cells.size for _, cells in self.segments),
            "strata": 0 if self.strata is None else self.strata.size,
            "histograms": sum(each.size for each in self.histograms),
            "baseline": 0 if self.baseline is None else self.baseline.size,
        } | ({} if self.arms is None else self.arms.kept())
        sums = {name: array.size for name, array in Sums.empty(self.shape).arrays().items()}
        return sums | {name: n for name, n in beside.items() if n}

    def census(self) -> Census:
        """How many stand behind the tallies."""
        if self.arms is not None:
            return self.arms.census()
        by_group = self.plan.grouped and not self.plan.within_clusters
        cells = self.records.astype(int).tolist() if by_group else [[n] for n in self.counts]
        return Census(dict(zip(self.plan.arms, cells, strict=True)), by_group=by_group)

    def mean_squares(self) -> Floats:
        """About the mean square of each column, from the spread of totals over the cells."""
        sums = self.plain()
        n, totals = sums.records[sums.records > 0][:, None], sums.total[sums.records > 0]
        mean = totals.sum(axis=0) / n.sum()
        squares: Floats = mean**2 + np.mean((totals - n * mean) ** 2 / n, axis=0)
        return squares

    def __add__(self, other: Grouped) -> Grouped:
        """Both sets of records; moments are mapped with the predictor of the sums that they are added to."""
        if self.released or other.released:
            raise StateError("a trial that was released has only noisy sums, which cannot be merged.")
        if not (self.n and other.n):
            return self if self.n else other
        return self._joined(other)

    def turned(self, plan: Plan, places: Sequence[int]) -> Grouped:
        """The same under a plan that has its arms in another order."""
        arms = len(places)

        def by_level(levels: int) -> list[int]:
            return [level * arms + place for level in range(levels) for place in places]

        segments = [
            SegmentTallies(levels, replace(cells.of_arms(by_level(len(levels))), plan=plan))
            for levels, cells in self.segments
        ]
        return replace(
            self.of_arms(places),
            plan=plan,
            segments=tuple(segments),
            arms=None if self.arms is None else self.arms.turned(plan, places),
            baseline=None if self.baseline is None else self.baseline.turned(plan, places),
        )

    def named(self) -> Self:
        """With levels of segments that the plan does not list by name, as far as that is known."""
        return replace(self, segments=tuple(segment.named() for segment in self.segments))

    def pooled(self) -> Grouped:
        """With levels of segments, characteristics, and covariates in moments, only where enough units have them."""
        arms = None if self.arms is None else self.arms.pooled()
        baseline = None if self.baseline is None else self.baseline.pooled()
        segments = tuple(segment.pooled() for segment in self.segments)
        return replace(self, segments=segments, arms=arms, baseline=baseline)

    # What lies beside moments or sums, by the names of the fields.

    def _beside(self) -> dict[str, Any]:
        names = ("histograms", "segments", "strata", "arms", "baseline")
        return {name: getattr(self, name) for name in names}

    def _strata_of_arms(self, places: Sequence[int]) -> Grouped | None:
        if self.strata is None:
            return None
        arms = len(self.records)
        first = range(0, len(self.strata.records), arms)
        return self.strata.of_arms([start + place if place >= 0 else -1 for start in first for place in places])

    def _for_sums(self, batch: Batch) -> Batch:
        return batch.for_sums(len(self.plan.predictors), len(self.plan.values))

    def _folded(self, batch: Batch, whole: Batch) -> dict[str, Any]:
        """With a batch taken in, as sums take it in and as it came."""
        strata, alike = self.strata, batch.alike()
        if strata is not None:
            histograms = self.plan.exits_by_stratum if strata.histograms else ()
            strata = strata.fold(batch.by_stratum(len(strata.records) // batch.arms, histograms))
        return {
            "histograms": tuple(
                fold_histogram(histogram, alike, bins, self.n)
                for histogram, bins in zip(self.histograms, batch.bins, strict=bool(self.histograms))
            ),
            "segments": tuple(
                segment.fold(batch, *levels)
                for segment, levels in zip(self.segments, batch.segments, strict=bool(batch.segments))
            ),
            "strata": strata,
            "arms": None if self.arms is None else self.arms.fold(whole),
            "baseline": None if self.baseline is None else self.baseline.fold(whole),
        }

    def _both(self, other: Grouped) -> dict[str, Any]:
        """Of both sets of records."""
        pairs = zip(self.segments, other.segments, strict=True)
        return {
            "histograms": tuple(one + two for one, two in zip(self.histograms, other.histograms, strict=True)),
            "segments": tuple(one.merged(two) for one, two in pairs),
            "strata": None if self.strata is None or other.strata is None else self.strata + other.strata,
            "arms": None if self.arms is None or other.arms is None else self.arms + other.arms,
            "baseline": None if self.baseline is None or other.baseline is None else self.baseline + other.baseline,
        }

    def _state(self, **own: Any) -> GroupedState:
        """With its own state, that of what lies beside it."""
        state = GroupedState(**own) if self.arms is None else StateBeside(**own)
        if self.n:
            state.histograms = [each.state() for each in self.histograms]
            state.segments = [(list(levels), cells.state()) for levels, cells in self.segments]
            state.strata = None if self.strata is None else self.strata.state()
            if self.baseline is not None:
                state.baseline, levels = self.baseline.sums.state(), self.baseline.states()
                state.levels = levels if any(levels) else msgspec.UNSET
            if isinstance(state, StateBeside) and self.arms is not None:
                state.arms = self.arms.state()
        return state
