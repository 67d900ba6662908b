"""Whose records a trial has: who is new since the last write, and who was seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foldaway.keeping.cohort import Newcomers, may_write
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.records.columns import slices_of
from foldaway.tallies.sums import group_of

_LOOK = 1_024  # records whose units are looked at together


SLICE = 1 << 17
"""Records of a large table that are folded at a time."""


def large_slices(data: Any, plan: Plan) -> list[pa.Table]:
    """A large table slice by slice, for plans that ask no more of a batch than of its records; else none."""
    if not isinstance(data, pa.Table) or data.num_rows < 2 * SLICE:
        return []
    if plan.whole_units or plan.unlisted or plan.bootstrap is not None or plan.federated is not None:
        return []
    unlisted = [data.schema.field(name).type for name in plan.unlisted_characteristics if name in data.column_names]
    if any(not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) for kind in unlisted):
        return []
    return slices_of(data, SLICE)


def with_batch(before: Newcomers, batch: Batch, plan: Plan) -> Newcomers:
    """With the units of a batch; hashes only where they may come back, and only until there is a cohort."""
    hashes: set[int] = set()
    units = 0
    if batch.unit is not None:
        units = int(np.count_nonzero(np.diff(batch.unit, prepend=-1)))
    elif plan.one_each:
        units = len(batch)
    else:
        who = batch.key if batch.who is None else batch.who
        for start in range(0, len(batch), _LOOK):
            if len(hashes) >= plan.privacy.cohort or may_write(plan.privacy, before):
                break
            assert who is not None
            hashes.update(who[start : start + _LOOK].tolist())
    return (before + Newcomers(len(batch), units, frozenset(hashes))).within(plan.privacy)


class Seen(NamedTuple):
    """At a site that sends sums, which do not show how many, the units that were folded in this process.

    Attributes:
        arms: How many arms there are.
        strata: How many strata there are; 1 where the plan has none. The arms of a stratum count side by side.
        values: Values that a record may lack, by their place from the end; units that have each are counted too.
        hashes: Keyed hashes of them, by arm: of all units, then of those that have each of the values; none where units
            are not counted. They lie in parts, each less than half as large as the one before it, so that a long run
            does not sort all of them with every batch.
        segments: The same of each of the plan's segments, the arms of a level side by side.
        characteristics: Of each column of the baseline table, who has a value that is no text of unlisted levels; then
            of each column without levels, who has text.
        traits: By column of the baseline table, the rows that it is in.
    """

    arms: int
    strata: int
    values: tuple[int, ...]
    hashes: tuple[tuple[NDArray[np.uint64], ...], ...]
    segments: tuple[Seen, ...] = ()
    characteristics: tuple[Seen, ...] = ()
    traits: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def nobody(cls, plan: Plan) -> Seen:
        """Before the first record."""
        counted = plan.federated is not None and plan.keyed
        first = [places[0] for places in plan.present_together]
        lackable = [place for place in first if plan.lackable.intersection(plan.values[place].columns)]
        values = tuple(place - len(plan.values) for place in lackable)
        strata = 1 if plan.strata is None else len(plan.strata.probabilities)
        arms = len(plan.arms)
        if not counted:
            return cls(arms, strata, values, ())
        levels = (len(plan.levels_of(column) or ()) for column in plan.segments)
        rows = [[row for row, (own, _) in enumerate(plan.traits, 1) if own == column] for column in plan.baseline]
        either = len(plan.baseline) + len(plan.unlisted_characteristics)
        return cls.of_cells(arms, strata, values)._replace(
            segments=tuple(cls.of_cells(n * arms, 1, values) for n in levels),
            characteristics=(cls.of_cells(arms, 1, ()),) * either,
            traits=tuple(map(tuple, rows)),
        )

    @classmethod
    def of_cells(cls, arms: int, strata: int, values: tuple[int, ...]) -> Seen:
        """Before the first record, where units are counted."""
        return cls(arms, strata, values, ((),) * (arms * strata * (1 + len(values))))

    def with_batch(self, batch: Batch) -> Seen:
        """With the units of a batch."""
        if not self.hashes or not len(batch):
            return self
        assert batch.key is not None
        here = [np.ones(len(batch), dtype=bool)]
        if self.values:
            rows = batch.assemble(slice(0, len(batch)))
            here += [~np.isnan(rows[value]) for value in self.values]
        levels = (
            segment.with_batch(batch.cut(level, len(names)))
            for segment, (names, level) in zip(self.segments, batch.segments, strict=bool(self.segments))
        )
        segments, characteristics = tuple(levels), tuple(self._characteristics_in(batch))
        if self.strata > 1:
            batch = batch.by_stratum(self.strata)
        assert batch.key is not None
        cells = range(self.arms * self.strata)
        parts = ((np.unique(batch.key[each & (batch.arm == cell)]),) for each in here for cell in cells)
        seen = self.merge(self._replace(hashes=tuple(parts), segments=(), characteristics=()))
        return seen._replace(segments=segments, characteristics=characteristics)

    def _characteristics_in(self, batch: Batch) -> Iterator[Seen]:
        if batch.baseline is None or not self.characteristics:
            return
        rows = batch.baseline(slice(0, len(batch)))
        places = [np.where(np.isnan(rows[list(own)]).all(axis=0), -2, 0) for own in self.traits]
        places += [np.full(len(batch), -2) if text is None else text[1] for text in batch.characteristics]
        for seen, place in zip(self.characteristics, places, strict=True):
            yield seen.with_batch(batch.having(place)[0])

    def merge(self, other: Seen) -> Seen:
        """Those of both."""
        segments = tuple(one.merge(two) for one, two in zip(self.segments, other.segments, strict=False))
        pairs = zip(self.characteristics, other.characteristics, strict=False)
        hashes = tuple(map(_united, self.hashes, other.hashes))
        return self._replace(hashes=hashes, segments=segments, characteristics=tuple(a.merge(b) for a, b in pairs))

    def units(self) -> NDArray[np.int64]:
        """How many there are, by stratum and arm side by side."""
        found: NDArray[np.int64] = self.by_group(1)[0, :, 0]
        return found

    def with_rest(self, told: NDArray[np.bool_]) -> Seen:
        """Of a segment with these levels, those that are told, and last all others as one."""
        arms = self.arms // len(told)
        rows = [self.hashes[start : start + arms] for start in range(0, len(self.hashes), arms)]
        found: list[tuple[NDArray[np.uint64], ...]] = []
        for first in range(0, len(rows), len(told)):
            here = rows[first : first + len(told)]
            found += [parts for row, each in zip(here, told, strict=True) if each for parts in row]
            others = [row for row, each in zip(here, told, strict=True) if not each]
            found += [sum((row[arm] for row in others), ()) for arm in range(arms)]
        return self._replace(arms=arms * (int(told.sum()) + 1), hashes=tuple(found))

    def by_group(self, groups: int) -> NDArray[np.int64]:
        """How many there are, by arm, or stratum and arm, and group: of all, then of those that have each value."""
        units = [np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *parts])) for parts in self.hashes]
        counts = [np.bincount(group_of(each, groups), minlength=groups) for each in units]
        return np.reshape(counts, (-1, self.strata * self.arms, groups))


def _united(ours: tuple[NDArray[np.uint64], ...], theirs: tuple[NDArray[np.uint64], ...]) -> tuple[Any, ...]:
    """The hashes of both, in parts of which each is less than half as large as the one before it."""
    parts = list(ours)
    for part in theirs:
        parts.append(part)
        while len(parts) > 1 and len(parts[-2]) <= 2 * len(parts[-1]):
            parts.append(np.union1d(parts.pop(), parts.pop()))
    return tuple(parts)
