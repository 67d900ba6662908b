"""What is held for the table of baseline characteristics: sums of traits, and levels that the plan does not list.

A characteristic without levels has numbers, which are a trait like any other, or text. Text is counted as a segment
whose levels the plan does not list is: by a mark, until enough units of each arm have the level. Once its levels are
known by name, everything about them is read as if the plan had listed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.tallies.cells import cell_of, taken
from foldaway.tallies.group_folding import fold_sums
from foldaway.tallies.levels import OTHER, OTHERS
from foldaway.tallies.segment import SegmentTallies
from foldaway.tallies.sums import Sums, SumsShape, group_of

Trait = tuple[str, str | None]
"""A column, and the level whose share it is; None of a numeric column."""

LevelStates = list[tuple[list[str], Array] | None]


@dataclass(frozen=True, slots=True)
class LevelCounts:
    """How many records have the levels of a characteristic.

    Attributes:
        plan: The plan.
        records: The number of records, by arm and group; the arms of each level side by side.
    """

    plan: Plan
    records: Floats

    @classmethod
    def empty(cls, plan: Plan, levels: int) -> Self:
        """Of no records."""
        return cls(plan, np.zeros((len(plan.arms) * levels, plan.groups_of_parts(1) if plan.grouped else 1)))

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        assert batch.arm is not None
        arms, groups = self.records.shape
        group = group_of(batch.key, groups) if batch.key is not None and groups > 1 else None
        cells = np.bincount(cell_of(batch.arm, group, groups), minlength=arms * groups)
        return replace(self, records=self.records + cells.reshape(arms, groups))

    def of_arms(self, places: Sequence[int]) -> Self:
        """The same of the arms at these places, an empty one where a place is -1."""
        return replace(self, records=taken(self.records, places))

    def __add__(self, other: Self) -> Self:
        """Both sets of records."""
        return replace(self, records=self.records + other.records)


@dataclass(frozen=True, slots=True)
class BaselineTallies:
    """Sums of the baseline's traits, and its levels. A value: folding and adding give a new one.

    Attributes:
        plan: The plan.
        sums: Sums of the plan's traits, by arm.
        levels: Of each characteristic whose levels the plan does not list, how many have which.
    """

    plan: Plan
    sums: Sums
    levels: tuple[SegmentTallies[LevelCounts], ...]

    @classmethod
    def empty(cls, plan: Plan) -> Self:
        """Of no records."""
        nobody = SegmentTallies((OTHER,), LevelCounts.empty(plan, 1))
        return cls(plan, Sums.empty(traits_shape(plan)), (nobody,) * len(plan.unlisted_characteristics))

    @property
    def n(self) -> int:
        """The number of records."""
        return self.sums.n

    @property
    def size(self) -> int:
        """How many numbers are kept."""
        levels = (each.cells.records for each in self.levels)
        return sum(each.size for each in (*self.sums.arrays().values(), *(each for each in levels if each.any())))

    def fold(self, batch: Batch) -> Self:
        """Take a batch in, whose unlisted levels are marked."""
        levels = [
            segment if given is None else _folded(segment, batch, *given)
            for segment, given in zip(self.levels, batch.characteristics, strict=True)
        ]
        return replace(self, sums=fold_sums(self.sums, batch.of_baseline()), levels=tuple(levels))

    def __add__(self, other: Self) -> Self:
        """Both sets of records."""
        levels = tuple(one.merged(two) for one, two in zip(self.levels, other.levels, strict=True))
        return replace(self, sums=self.sums + other.sums, levels=levels)

    def turned(self, plan: Plan, places: Sequence[int]) -> Self:
        """The same under a plan that has its arms in another order."""

        def turn(segment: SegmentTallies[LevelCounts]) -> SegmentTallies[LevelCounts]:
            at = [level * len(places) + place for level in range(len(segment.levels)) for place in places]
            return segment._replace(cells=replace(segment.cells.of_arms(at), plan=plan))

        return replace(self, plan=plan, sums=self.sums.of_arms(places), levels=tuple(map(turn, self.levels)))

    def named(self) -> Self:
        """With levels by name, as far as that is known."""
        return replace(self, levels=tuple(each.named() for each in self.levels))

    def pooled(self) -> Self:
        """With levels that the plan does not list only where enough units of each arm have them in common."""
        return replace(self, levels=tuple(each.pooled() for each in self.levels))

    def text_by_level(self) -> dict[str, dict[str, Floats]]:
        """Of each characteristic that may be text, how many records have each level that has a name, by arm, or others.

        Nothing of one of which no record has text.
        """
        found: dict[str, dict[str, Floats]] = {}
        for column, segment in zip(self.plan.unlisted_characteristics, self.named().levels, strict=True):
            for level in segment.levels:
                counts, name = segment.level(level).records.sum(axis=1), OTHER if level == OTHERS else level
                if counts.any():
                    by_level = found.setdefault(column, {OTHER: np.zeros(len(counts))})
                    by_level[name] = by_level.get(name, 0) + counts
        return found

    def with_text(self, levels: Mapping[str, Mapping[str, Sequence[float]]]) -> Self:
        """The same with so many records that have these levels, by arm, in place of its own."""
        found = []
        for column, nobody in zip(self.plan.unlisted_characteristics, self.levels, strict=True):
            here = {OTHER: np.zeros(len(self.plan.arms)), **levels.get(column, {})}
            empty = LevelCounts.empty(self.plan, len(here))
            records = empty.records.copy()
            records[:, 0] = np.concatenate(list(here.values()))
            counts = SegmentTallies(tuple(here), replace(empty, records=records))
            found.append(counts if column in levels else nobody)
        return replace(self, levels=tuple(found))

    def by_trait(self) -> dict[Trait, Sums]:
        """The sums of each trait, as if the plan had listed all levels that have a name; the others are one more."""
        found, text = dict[Trait, Sums](), self.text_by_level()
        for place, (column, level) in enumerate(self.plan.traits):
            by_level = text.get(column, {})
            if sum(counts.sum() for counts in by_level.values()) > self.sums.counts(place).sum():  # it is one of text
                found |= _shares(self.sums, column, by_level)
            else:
                found[column, level] = _of_columns(self.sums, [place])
        return found

    def states(self) -> LevelStates:
        """What is kept of levels; nothing of a characteristic that has none."""
        return [
            (list(levels), Array.of(cells.records)) if cells.records.any() else None for levels, cells in self.levels
        ]

    @classmethod
    def restore(cls, sums: Any, levels: Any, plan: Plan) -> Self:
        """What was held, from the states of both; those of before text was counted have no levels."""
        empty = cls.empty(plan)
        held = replace(empty, sums=Sums.restore(sums, traits_shape(plan)))
        if not levels:
            return held
        saved = decode_part(levels, LevelStates)
        if len(saved) != len(empty.levels) or any(each is not None and each[0][:1] != [OTHER] for each in saved):
            raise StateError("the state does not fit its plan: it has other levels of its baseline.")
        segments = []
        for each, nobody in zip(saved, empty.levels, strict=True):
            names, records = (list(nobody.levels), Array.of(nobody.cells.records)) if each is None else each
            counts = records.read(*LevelCounts.empty(plan, len(names)).records.shape)
            if np.any(counts < 0) or np.any(counts != np.floor(counts)) or counts.sum() > held.n:
                raise StateError("the state is damaged: its counts do not fit.")
            segments.append(SegmentTallies(tuple(names), LevelCounts(plan, counts)))
        return replace(held, levels=tuple(segments))


def traits_shape(plan: Plan) -> SumsShape:
    """Of the baseline's sums: traits in the place of outcomes, of which a record may lack any, and no groups."""
    return SumsShape(len(plan.arms), len(plan.traits), 1, missing=True)


def _folded(
    segment: SegmentTallies[LevelCounts], batch: Batch, levels: Sequence[str], place: Any
) -> SegmentTallies[LevelCounts]:
    having, place = batch.having(place)
    return segment.fold(having, levels, place) if len(having) else segment


def _of_columns(sums: Sums, places: list[int]) -> Sums:
    """The sums of the traits at these places."""
    names = ("level", "present", "total", "mass", "first", "square", "absolute")
    arrays: dict[str, Any] = {name: getattr(sums, name)[..., places] for name in names}
    return replace(sums, shape=sums.shape._replace(outcomes=len(places)), **arrays)


def _shares(sums: Sums, column: str, by_level: Mapping[str, Floats]) -> dict[Trait, Sums]:
    """The sums of 0 and 1 for each level that some record has, the others last."""
    counts = {level: records[:, None] for level, records in by_level.items()}
    having = np.sum(list(counts.values()), axis=0)
    found = dict[Trait, Sums]()
    for level in sorted(counts, key=lambda name: (name == OTHER, name)):
        n = counts[level]
        square = n - np.divide(n**2, having, out=np.zeros_like(n), where=having > 0)
        arrays: dict[str, Any] = {"level": np.zeros(1), "present": having[:, None], "total": n[:, None], "mass": having}
        arrays |= {"first": n, "square": square, "absolute": n}
        if n.any():
            found[column, level or OTHERS] = replace(_of_columns(sums, [0]), **arrays)
    return found
