"""A segment: the same records once more, with an arm for each arm and level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.records.check import MOST_LEVELS
from foldaway.tallies.levels import OTHER, identity, is_marked, name_of, united, with_marks


class HeldOfSegment(Protocol):
    """What can be held of a segment."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def records(self) -> Floats:
        """The number of records, by arm and group."""

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""

    def of_arms(self, places: Sequence[int]) -> Self:
        """The same of the arms at these places, an empty one where a place is -1."""

    def __add__(self, other: Self) -> Self:
        """Both sets of records."""


C = TypeVar("C", bound=HeldOfSegment)


class SegmentTallies(NamedTuple, Generic[C]):
    """A segment.

    Attributes:
        levels: Its levels. Where the plan lists none, the first is `OTHER`, for whoever has no level of their own, and
            the others are entries of marks and names: see `tallies.levels`.
        cells: What is held, the arms of a level side by side.
    """

    levels: tuple[str, ...]
    cells: C

    def fold(self, batch: Batch, levels: Sequence[str], level: NDArray[np.integer[Any]]) -> SegmentTallies[C]:
        """Take a batch in, whose records have these levels; -1 is none of them."""
        entries = with_marks(self.levels, levels, MOST_LEVELS)
        wide = self.of_levels(entries) if len(entries) > len(self.levels) else self
        places = {identity(name): place for place, name in enumerate(wide.levels)}
        place = np.array([places.get(identity(name), 0) for name in (*levels, OTHER)])[level]
        return wide._replace(cells=wide.cells.fold(batch.cut(place, len(wide.levels)))).learnt(levels)

    def learnt(self, levels: Sequence[str]) -> SegmentTallies[C]:
        """With the names of these entries where they are common by now."""
        if self.levels[0] != OTHER:
            return self
        known, arms = dict(zip(map(identity, levels), levels, strict=True)), len(self.cells.plan.arms)
        records, entries = self.cells.records, list(self.levels)
        for place, entry in enumerate(entries):
            if entry in known and self._common(records[arms * place : arms * (place + 1)]):  # a mark without a name
                entries[place] = known[entry]
        return self._replace(levels=tuple(entries))

    def _common(self, records: Floats) -> bool:
        """Whether enough units of each arm have a level that the plan does not list."""
        plan = self.cells.plan
        return min(units_of(plan, records, 1)) >= plan.privacy.smallest_cell

    def named(self) -> SegmentTallies[C]:
        """With levels by name; whose names are not known are among the others."""
        if self.levels[0] != OTHER:
            return self
        unknown = [entry for entry in self.levels if not name_of(entry)]
        known = [entry for entry in self.levels if name_of(entry)]
        rest = SegmentTallies((OTHER,), self.level(OTHER))
        for entry in unknown[1:]:
            rest = rest.merged(SegmentTallies((OTHER,), self.level(entry)))
        cells = self.of_levels(known)
        return rest.merged(SegmentTallies(tuple(map(name_of, known)), cells.cells)) if known else rest

    def of_levels(self, levels: Sequence[str]) -> SegmentTallies[C]:
        """With these levels, in this order."""
        arms, held = len(self.cells.plan.arms), {identity(entry): place for place, entry in enumerate(self.levels)}
        first = [arms * held[identity(level)] if identity(level) in held else None for level in levels]
        places = [-1 if start is None else start + arm for start in first for arm in range(arms)]
        return SegmentTallies(tuple(levels), self.cells.of_arms(places))

    def level(self, level: str) -> C:
        """What is held of one level, by arm."""
        return self.of_levels([level]).cells

    def merged(self, other: SegmentTallies[C]) -> SegmentTallies[C]:
        """Of both sets of records."""
        levels = united(self.levels, other.levels)
        return SegmentTallies(tuple(levels), self.of_levels(levels).cells + other.of_levels(levels).cells)

    def pooled(self) -> SegmentTallies[C]:
        """With levels that the plan does not list only where `smallest_cell` units of each arm have them in common."""
        if self.levels[0] != OTHER:
            return self
        least = self.cells.plan.privacy.smallest_cell
        cells = {level: self.level(level) for level in self.levels[1:]}
        rare = [
            level
            for level, held in cells.items()
            if min(units_of(held.plan, held.records, 1 if is_marked(level) else None)) < least
        ]
        rest = SegmentTallies((OTHER,), self.level(OTHER))
        for level in rare:
            rest = rest.merged(SegmentTallies((OTHER,), cells[level]))
        common = sorted(level for level in cells if level not in rare)
        return rest.merged(self.of_levels(common)) if common else rest


def side_by_side_of(levels: Mapping[str, C]) -> SegmentTallies[C]:
    """A segment of these levels, of each of which this is held."""
    names = sorted(levels)
    first, *others = (levels[name] for name in names)
    arms, number = len(first.plan.arms), len(names)

    def at(place: int, held: C) -> C:
        return held.of_arms([arm if each == place else -1 for each in range(number) for arm in range(arms)])

    cells = at(0, first)
    for place, held in enumerate(others, 1):
        cells += at(place, held)
    return SegmentTallies(tuple(names), cells)


def first_levels(plan: Plan, column: str) -> tuple[str, ...]:
    """The levels of a segment before its first record."""
    return tuple(plan.levels_of(column) or (OTHER,))


def units_of(plan: Plan, records: Floats, of_group: int | None = None) -> list[int]:
    """By arm, the units that records by arm and group certainly have: one for each group, or for each record.

    A group in which a site has units of an arm has `smallest_cell` of them.
    """
    of_group = of_group or (plan.privacy.smallest_cell if plan.sites_only else 1)
    by_arm = np.count_nonzero(records > 0, axis=1) * of_group if plan.grouped else records.sum(axis=1).round()
    return [int(n) for n in by_arm]
