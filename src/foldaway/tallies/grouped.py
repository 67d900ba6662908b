"""What a trial holds that keeps sums: rich in memory, lean at the door.

While nothing has left memory, a trial with covariates holds moments by group: any regression, on all records, follows
from them. `save` and `dumps` fix a predictor and map the moments to sums (`predictor.lean`); from then on a record's
covariates are used and gone as it is folded. A trial whose plan has coefficients, or no covariates, holds sums from its
first record.

Two trials with different predictors have their plain outcomes in common, and nothing else.

Quantiles have histograms beside this, the same whether the trial is rich or lean.

A segment is the same once more, with an arm for each arm and level. Strata, where records are independent, are plain
sums with an arm for each arm and stratum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.group_folding import fold_histogram, fold_sums
from foldaway.tallies.histogram import MOST_GROUPS, Histogram, HistogramShape
from foldaway.tallies.predictor import Predictor, predictor_of
from foldaway.tallies.release import ReleasedState, release, restored_release
from foldaway.tallies.sums import Sums, SumsShape

FOLDS = 16
"""Into so many parts records without units are dealt in turn, so that coefficients can be fitted without each."""

OTHER = ""
"""The level of whoever has none of their own, in a segment whose levels the plan does not list."""

# A segment whose levels the plan does not list has no more of them in one process.
MOST_LEVELS = 100

DIFFERENT = "the tallies that were merged were adjusted with different coefficients"


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


class Segment(NamedTuple):
    """A segment: the same records once more, with an arm for each arm and level.

    Attributes:
        levels: Its levels. Where the plan lists none, the first is `OTHER`, for whoever has no level of their own.
        cells: What is held, the arms of a level side by side.
    """

    levels: tuple[str, ...]
    cells: Grouped

    @classmethod
    def empty(cls, plan: Plan, column: str) -> Segment:
        """Of no records."""
        levels = tuple(plan.levels_of(column) or (OTHER,))
        return cls(levels, Grouped.empty(plan, len(levels)))

    def fold(self, batch: Batch, levels: Sequence[str], level: NDArray[np.integer[Any]]) -> Segment:
        """Take a batch in, whose records have these levels; -1 is none of them."""
        room = max(MOST_LEVELS - len(self.levels), 0)
        new = [name for name in levels if name not in self.levels][:room]
        wide = self.of_levels([*self.levels, *new]) if new else self
        places = {name: place for place, name in enumerate(wide.levels)}
        place = np.array([places.get(name, 0) for name in (*levels, OTHER)])[level]
        return wide._replace(cells=wide.cells.fold(batch.cut(place, len(wide.levels))))

    def of_levels(self, levels: Sequence[str]) -> Segment:
        """With these levels, in this order."""
        arms = len(self.cells.plan.arms)
        first = [arms * self.levels.index(level) if level in self.levels else None for level in levels]
        places = [-1 if start is None else start + arm for start in first for arm in range(arms)]
        return Segment(tuple(levels), self.cells.of_arms(places))

    def level(self, level: str) -> Grouped:
        """What is held of one level, by arm."""
        return self.of_levels([level]).cells

    def merged(self, other: Segment) -> Segment:
        """Of both sets of records."""
        levels = [*self.levels, *(level for level in other.levels if level not in self.levels)]
        return Segment(tuple(levels), self.of_levels(levels).cells + other.of_levels(levels).cells)

    def pooled(self, least: int) -> Segment:
        """With levels that the plan does not list only where so many units of each arm have them in common."""
        if self.levels[0] != OTHER:
            return self
        cells = {level: self.level(level) for level in self.levels[1:]}
        rare = [level for level, held in cells.items() if min(units_of(held.plan, held.records)) < least]
        rest = Segment((OTHER,), self.level(OTHER))
        for level in rare:
            rest = rest.merged(Segment((OTHER,), cells[level]))
        common = sorted(level for level in cells if level not in rare)
        return rest.merged(self.of_levels(common)) if common else rest


@dataclass(frozen=True, slots=True)
class Grouped:
    """Sums by group, or the moments that they will come from. A value: folding and adding give a new one.

    Attributes:
        plan: The plan.
        moments: While the trial is rich.
        sums: Once it is lean.
        predictor: What makes ỹ of a record, once that is fixed.
        why: Why outcomes are not adjusted, in a sentence without a capital; empty if they are, or the trial is rich.
        released: Whether the sums are those of a release, with noise.
        segments: The same by segment, in the order of the plan.
        strata: Sums by arm and stratum, where records are independent; the arms of a stratum side by side.
        histograms: For each of the plan's bins, records by arm, group and bin.
    """

    plan: Plan
    moments: CompleteCases | None
    sums: Sums | None
    predictor: Predictor | None = None
    why: str = ""
    released: bool = False
    segments: tuple[Segment, ...] = ()
    strata: Sums | None = None
    histograms: tuple[Histogram, ...] = ()

    @classmethod
    def empty(cls, plan: Plan, levels: int | None = None) -> Self:
        """What is held of no records; or of a segment with so many levels."""
        predictor = predictor_of(plan)
        if plan.covariates and predictor is None:
            held = cls(plan, CompleteCases.empty(plan, plan.groups if plan.grouped else FOLDS, levels or 1), None)
        else:
            shape = _sums_shape(plan, adjusted=predictor is not None, levels=levels or 1)
            held = cls(plan, None, Sums.empty(shape), predictor)
        arms, groups = len(plan.arms) * (levels or 1), min(plan.groups, MOST_GROUPS) if plan.grouped else 1
        shapes = (HistogramShape(arms, groups, bins.number, plan.weighted) for bins in plan.bins)
        held = replace(held, histograms=tuple(map(Histogram.empty, shapes)))
        if levels is not None:
            return held
        strata = Sums.empty(_strata_shape(plan)) if plan.strata is not None and not plan.grouped else None
        return replace(held, segments=tuple(Segment.empty(plan, each) for each in plan.segments), strata=strata)

    @property
    def records(self) -> Floats:
        """The number of records, by arm and group."""
        tally = self.sums or self.moments
        assert tally is not None
        return tally.records

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
        adjusted = bool(self.plan.covariates)
        segments = 0
        for levels, cells in self.segments:
            shape = _sums_shape(self.plan, adjusted=adjusted, levels=len(levels))
            segments += sum(_numbers(shape).values()) + sum(each.size for each in cells.histograms)
        beside = {
            "segments": segments,
            "strata": 0 if self.strata is None else sum(_numbers(self.strata.shape).values()),
            "histograms": sum(each.size for each in self.histograms),
        }
        sums = _numbers(_sums_shape(self.plan, adjusted=adjusted))
        return sums | {name: numbers for name, numbers in beside.items() if numbers}

    def plain(self) -> Sums:
        """Sums of the outcomes, whatever else is held."""
        if self.sums is not None:
            return self.sums
        assert self.moments is not None
        sums = self.moments.lean(None)
        return sums if self.plan.grouped else sums.regrouped(1)

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        if self.moments is not None and batch.key is None:  # in turn: coefficients are fitted without each part
            batch = replace(batch, key=np.arange(self.moments.n, self.moments.n + len(batch), dtype=np.uint64))
        pairs_of_bins = zip(self.histograms, batch.bins, strict=True)
        more: dict[str, Any] = {"histograms": tuple(fold_histogram(each, batch, bins) for each, bins in pairs_of_bins)}
        if batch.segments:
            batch = batch.assembled_once() if self.moments is None else batch
            pairs = zip(self.segments, batch.segments, strict=True)
            more["segments"] = tuple(segment.fold(batch, *levels) for segment, levels in pairs)
        if self.strata is not None and batch.stratum is not None:
            cut = replace(batch.cut(batch.stratum, self.strata.shape.arms // batch.arms), key=None)
            more["strata"] = fold_sums(self.strata, cut)
        if self.moments is not None:
            return replace(self, moments=self.moments.fold(batch), **more)
        assert self.sums is not None
        return replace(self, sums=fold_sums(self.sums, batch, self.predictor), **more)

    def of_arms(self, places: Sequence[int]) -> Self:
        """The same of the arms at these places, an empty one where a place is -1; segments and strata are left out."""
        moments = None if self.moments is None else self.moments.of_arms(places)
        sums = None if self.sums is None else self.sums.of_arms(places)
        histograms = tuple(each.of_arms(places) for each in self.histograms)
        return replace(self, moments=moments, sums=sums, segments=(), strata=None, histograms=histograms)

    def fold_totals(
        self, arm: NDArray[np.intp], group: NDArray[np.intp], counts: NDArray[np.int64], totals: Floats
    ) -> Self:
        """Take in sums over each unit's records: see `Sums.fold_totals`."""
        assert self.sums is not None
        return replace(self, sums=self.sums.fold_totals(arm, group, counts, totals))

    def fixed(self, predictor: Predictor | None, without: Floats | None = None, why: str = "") -> Self:
        """The same records as sums, from here on with this predictor.

        Args:
            predictor: None if outcomes are not adjusted.
            without: See `predictor.lean`.
            why: Why they are not.
        """
        if self.moments is None:
            return self
        sums = self.moments.lean(predictor, without)
        segments = [Segment(each.levels, each.cells.fixed(predictor, without, why)) for each in self.segments]
        return replace(
            self,
            segments=tuple(segments),
            moments=None,
            sums=sums if self.plan.grouped else sums.regrouped(1),
            predictor=predictor,
            why="" if predictor is not None else why,
        )

    def release(self) -> Self:
        """The sums with noise in the place of the exact ones; a second time it is the same."""
        if self.released:
            return self
        assert self.sums is not None
        return replace(self, sums=release(self.plan, self.sums), released=True)

    def __add__(self, other: Self) -> Self:
        """Both sets of records; moments are mapped with the predictor of the sums that they are added to."""
        if self.released or other.released:
            raise StateError("a trial that was released has only noisy sums, which cannot be merged.")
        if not (sum(self.counts) and sum(other.counts)):
            return self if sum(self.counts) else other
        parts = zip(self.segments, other.segments, strict=True)
        both = replace(
            self,
            segments=tuple(one.merged(two) for one, two in parts),
            strata=None if self.strata is None or other.strata is None else self.strata + other.strata,
            histograms=tuple(one + two for one, two in zip(self.histograms, other.histograms, strict=True)),
        )
        if self.moments is not None and other.moments is not None:
            return replace(both, moments=self.moments + other.moments)
        one = both.fixed(other.predictor, why=other.why)
        two = other.fixed(self.predictor, why=self.why)
        assert one.sums is not None
        assert two.sums is not None
        if _same(one.predictor, two.predictor):
            return replace(one, sums=one.sums + two.sums, why=one.why or two.why)
        sums = one.sums.unadjusted() + two.sums.unadjusted()
        before = next((why for why in (one.why, two.why) if why.startswith(DIFFERENT)), "")
        return replace(one, sums=sums, predictor=None, why=before or _different(one.predictor, two.predictor))

    def turned(self, plan: Plan, places: Sequence[int]) -> Self:
        """The same under a plan that has its arms in another order."""
        arms = len(places)

        def by_level(levels: int) -> list[int]:
            return [level * arms + place for level in range(levels) for place in places]

        segments = [
            Segment(levels, replace(cells.of_arms(by_level(len(levels))), plan=plan)) for levels, cells in self.segments
        ]
        strata = None if self.strata is None else self.strata.of_arms(by_level(self.strata.shape.arms // arms))
        return replace(self.of_arms(places), plan=plan, segments=tuple(segments), strata=strata)

    def pooled(self, least: int) -> Self:
        """With levels of segments that the plan does not list only where so many units of each arm have them."""
        return replace(self, segments=tuple(segment.pooled(least) for segment in self.segments))

    def state(self) -> GroupedState:
        """What is kept."""
        if self.released:
            assert self.sums is not None
            return GroupedState(released=ReleasedState(Array.of(self.sums.records), Array.of(self.sums.total)))
        state = GroupedState(
            moments=None if self.moments is None or not self.moments.n else self.moments.state(),
            sums=None if self.sums is None or not self.sums.n else self.sums.state(),
            why=self.why,
        )
        if self.predictor is not None and self.plan.coefficients is None:
            state.center, state.slopes = Array.of(self.predictor.center), Array.of(self.predictor.slopes)
        if sum(self.counts):
            state.histograms = [each.state() for each in self.histograms]
            state.segments = [(list(levels), cells.state()) for levels, cells in self.segments]
            state.strata = None if self.strata is None else self.strata.state()
        return state

    @classmethod
    def restore(cls, state: Any, plan: Plan) -> Self:
        """What was held, from its state."""
        saved = decode_part(state, GroupedState)
        held = cls._restored(saved, plan)
        if not sum(held.counts):
            return held
        if len(saved.segments) != len(plan.segments) or (saved.strata is None) != (held.strata is None):
            raise StateError("the state does not fit its plan: it has other segments or strata.")
        segments = []
        for column, (levels, cells) in zip(plan.segments, saved.segments, strict=True):
            if (listed := plan.levels_of(column)) and tuple(listed) != tuple(levels):
                raise StateError("the state does not fit its plan: a segment has other levels.")
            part = decode_part(cells, GroupedState)
            segments.append(Segment(tuple(levels), cls._restored(part, plan, len(levels))))
        strata = None if saved.strata is None else Sums.restore(saved.strata, _strata_shape(plan))
        parts: list[Grouped] = [held, *(segment.cells for segment in segments)]
        beside = [*(segment.cells.n for segment in segments), *([] if strata is None else [strata.n])]
        if any(n != held.n for n in beside) or any(each.n > held.n for part in parts for each in part.histograms):
            raise StateError("the state is damaged: its counts do not fit.")
        return replace(held, segments=tuple(segments), strata=strata)

    @classmethod
    def _restored(cls, saved: GroupedState, plan: Plan, levels: int | None = None) -> Self:
        empty = cls.empty(plan, levels)
        if saved.moments is not None or saved.sums is not None:
            if len(saved.histograms) != len(empty.histograms):
                raise StateError("the state does not fit its plan: it has other histograms.")
            shapes = [each.shape for each in empty.histograms]
            empty = replace(empty, histograms=tuple(map(Histogram.restore, saved.histograms, shapes)))
        if saved.released is not None:
            sums = restored_release(saved.released, plan)
            return replace(empty, sums=sums, released=True)
        if saved.moments is not None:
            if empty.moments is None or saved.sums is not None:
                raise StateError("the state does not fit its plan: it has other tallies.")
            return replace(empty, moments=empty.moments.restored(saved.moments))
        if saved.sums is None:
            return empty
        predictor = empty.predictor
        if saved.center is not None and saved.slopes is not None and empty.moments is not None:
            columns = len(plan.regressors) - 1
            predictor = Predictor(saved.center.read(columns), saved.slopes.read(len(plan.values), columns))
        adjusted = predictor is not None and not saved.why
        if plan.covariates and not adjusted and not saved.why:
            raise StateError("the state is damaged: its outcomes are not adjusted, and it does not say why.")
        sums = Sums.restore(saved.sums, _sums_shape(plan, adjusted=adjusted, levels=levels or 1))
        return replace(empty, moments=None, sums=sums, predictor=predictor if adjusted else None, why=saved.why)


def units_of(plan: Plan, records: Floats) -> list[int]:
    """By arm, the units that records by arm and group certainly have: one for each group, or for each record."""
    by_arm = np.count_nonzero(records > 0, axis=1) if plan.grouped else records.sum(axis=1).round()
    return [int(n) for n in by_arm]


def _sums_shape(plan: Plan, *, adjusted: bool, levels: int = 1) -> SumsShape:
    groups = plan.groups if plan.grouped else 1
    size = len(plan.arms) * levels, len(plan.values), groups
    return SumsShape(*size, adjusted, plan.weighted, plan.lacking, plan.pairs)


def _strata_shape(plan: Plan) -> SumsShape:
    assert plan.strata is not None
    return SumsShape(
        len(plan.arms) * len(plan.strata.probabilities), len(plan.values), 1, weighted=True, missing=plan.lacking
    )


def _numbers(shape: SumsShape) -> dict[str, int]:
    """How many numbers there are in each array of sums."""
    return {name: array.size for name, array in Sums.empty(shape).arrays().items()}


def _same(one: Predictor | None, two: Predictor | None) -> bool:
    return one is two or (one is not None and two is not None and one.digest == two.digest)


def _different(*predictors: Predictor | None) -> str:
    """Why `adjusted` is withheld, with digests by which the states can be told apart."""
    digests = sorted("none" if each is None else each.digest[:12] for each in predictors)
    return (
        f"{DIFFERENT} (digests {' and '.join(digests)}), so only their plain outcomes can be added. Put the same "
        "coefficients into every part's plan: `foldaway plan calibrate`."
    )
