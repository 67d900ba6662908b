"""Moments of complete cases: what a trial with covariates holds in memory until its coefficients are fixed.

Values that a record has or lacks together are a set; each set has the moments of those records that have it, from which
its regression on complete cases follows. Where no value may be missing there is one set, and nothing but its moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats, Shape
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.tallies.cells import cell_of, taken
from foldaway.tallies.group_folding import fold_group_moments
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.predictor import Predictor, lean
from foldaway.tallies.sums import Sums, SumsShape, group_of

# Records that are looked through together for the values that they have.
_STEP = 1 << 16

Places = tuple[int, ...]


class CompleteCasesState(msgspec.Struct, array_like=True):
    """What is exchanged between workers, encrypted, where values may be missing."""

    everyone: Array
    parts: list[Any]


@dataclass(frozen=True, slots=True)
class CompleteCases:
    """The moments, by set of values. A value: folding and adding give a new one.

    Attributes:
        sets: Where the values of each set stand among all of them.
        parts: Their moments.
        everyone: The number of all records and, if these have weights, Σw, by arm and group; None where no value may be
            missing.
        pairs: Values whose products are wanted of sums.
    """

    sets: tuple[Places, ...]
    parts: tuple[GroupMoments, ...]
    everyone: Floats | None
    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def empty(cls, plan: Plan, groups: int, levels: int, *, weighted: bool) -> Self:
        """The moments of no records; of segments and strata, with an arm for each arm and level."""
        arms, k, sets = len(plan.arms) * levels, len(plan.predictors), plan.present_together
        shapes = [MomentsShape(arms, groups, Shape(k, len(places)), weighted) for places in sets]
        everyone = np.zeros((arms, groups, 1 + weighted)) if plan.lacking else None
        return cls(sets, tuple(map(GroupMoments.empty, shapes)), everyone, plan.pairs)

    @property
    def records(self) -> Floats:
        """The number of records, by arm and group."""
        return self.parts[0].records if self.everyone is None else self.everyone[..., 0]

    @property
    def n(self) -> int:
        """The number of records."""
        return int(self.records.sum())

    @property
    def shape(self) -> SumsShape:
        """Of the sums of y and ỹ that come from them."""
        arms, groups, _, weighted = self.parts[0].shape
        values = sum(map(len, self.sets))
        return SumsShape(arms, values, groups, True, weighted, self.everyone is not None, self.pairs)

    @property
    def largest(self) -> int:
        """Which set most records have."""
        return max(range(len(self.parts)), key=lambda i: self.parts[i].n)

    def of(self, value: int) -> tuple[GroupMoments, int]:
        """The moments of the set that a value is in, and its place there."""
        which = next(i for i, places in enumerate(self.sets) if value in places)
        return self.parts[which], self.sets[which].index(value)

    def fold(self, batch: Batch) -> Self:
        """Take a batch in, each record into the moments of the sets that it has."""
        if self.everyone is None:
            return replace(self, parts=(fold_group_moments(self.parts[0], batch),))
        arms, groups, columns = self.everyone.shape
        parts = list(self.parts)
        for start in range(0, len(batch), _STEP):
            here = slice(start, min(start + _STEP, len(batch)))
            rows = batch.assemble(here)
            for i, places in enumerate(self.sets):
                parts[i] = fold_group_moments(parts[i], _having(batch, here, rows, places, parts[i].shape.row))
        assert batch.arm is not None
        cell = cell_of(batch.arm, None if batch.key is None else group_of(batch.key, groups), groups)
        counted = [np.bincount(cell, each, minlength=arms * groups) for each in (None, batch.weight)[:columns]]
        added = np.stack(counted, axis=-1).reshape(self.everyone.shape)
        return replace(self, parts=tuple(parts), everyone=self.everyone + added)

    def lean(self, predictor: Predictor | None, without: Floats | None = None) -> Sums:
        """The moments as sums of y and ỹ by arm and group; see `predictor.lean`."""
        if self.everyone is None:
            return lean(self.parts[0], predictor, without, self.pairs)
        sums = replace(Sums.empty(self.shape._replace(adjusted=predictor is not None)), records=self.records)
        if sums.weight is not None:
            sums.weight[..., -1] = self.everyone[..., 1]
        for places, part in zip(self.sets, self.parts, strict=True):
            own = predictor if predictor is None else predictor._replace(slopes=predictor.slopes[list(places)])
            slopes = without if without is None else without[:, list(places)]
            pairs = tuple((places.index(u), places.index(v)) for u, v in self.pairs if u in places and v in places)
            _place(sums, lean(part, own, slopes, pairs), places)
        return sums.settled()

    def of_arms(self, places: Sequence[int]) -> Self:
        """The moments of the arms at these places; an arm without records where a place is -1."""
        everyone = None if self.everyone is None else taken(self.everyone, places)
        return replace(self, parts=tuple(part.of_arms(places) for part in self.parts), everyone=everyone)

    def __add__(self, other: Self) -> Self:
        """The moments of both sets of records."""
        parts = tuple(one + two for one, two in zip(self.parts, other.parts, strict=True))
        everyone = None if self.everyone is None or other.everyone is None else self.everyone + other.everyone
        return replace(self, parts=parts, everyone=everyone)

    def state(self) -> Any:
        """What is exchanged."""
        parts = [part.state() for part in self.parts]
        return parts[0] if self.everyone is None else CompleteCasesState(Array.of(self.everyone), parts)

    def restored(self, state: Any) -> Self:
        """Moments of this shape from their state."""
        if self.everyone is None:
            return replace(self, parts=(GroupMoments.restore(state, self.parts[0].shape),))
        kept = decode_part(state, CompleteCasesState)
        if len(kept.parts) != len(self.parts):
            raise StateError("the state does not fit its plan: it has other moments.")
        parts = [GroupMoments.restore(each, part.shape) for each, part in zip(kept.parts, self.parts, strict=True)]
        everyone = kept.everyone.read(*self.everyone.shape)
        records = everyone[..., 0]
        if any(np.any(part.records > records) for part in parts) or np.any(records != np.floor(records)):
            raise StateError("the state is damaged: its counts do not fit.")
        return replace(self, parts=tuple(parts), everyone=everyone)


def _place(whole: Sums, part: Sums, places: Sequence[int]) -> None:
    """Put sums of some of the outcomes, of those records that have them, into their places in the whole."""
    own = list(places)
    columns = own + [whole.shape.outcomes + place for place in own] if whole.shape.adjusted else own
    assert whole.present is not None
    whole.present[..., own] = part.records[..., None]
    if whole.weight is not None and part.weight is not None:
        whole.weight[..., own] = part.weight
    for name in ("level", "total", "first", "square"):
        getattr(whole, name)[..., columns] = getattr(part, name)
    for p, pair in enumerate(whole.shape.pairs):
        if whole.joint is not None and part.joint is not None and pair[0] in own:
            local = (own.index(pair[0]), own.index(pair[1]))
            whole.joint[:, p] = part.joint[:, part.shape.pairs.index(local)]
    for name in ("mass", "absolute", *(["cross"] if whole.cross is not None else [])):
        getattr(whole, name)[..., own] = getattr(part, name)


def _having(batch: Batch, here: slice, rows: Floats, places: Places, row: Shape) -> Batch:
    """Those records of a part of the batch that have the values of a set, with these alone."""
    k = row.regressors
    wanted = [*range(k), *(k + place for place in places)]
    index = np.flatnonzero(~np.isnan(rows[wanted[k:]]).any(axis=0))
    picked = rows[np.ix_(wanted, index)]
    return Batch(
        len(index),
        lambda part: picked[:, part],
        batch.arms,
        None if batch.arm is None else batch.arm[here][index],
        None if batch.weight is None else batch.weight[here][index],
        key=None if batch.key is None else batch.key[here][index],
    )
