"""Batches folded into sums and moments by group, on all cores: each worker folds a part, and the parts are added.

Records come to groups by their keyed hashes. The tallies given are left as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import CellPiece
from foldaway.numerics.threads import on_threads, one_blas_thread
from foldaway.records.batch import Batch
from foldaway.tallies.cells import STEP, cell_of
from foldaway.tallies.group_moments import GroupMoments
from foldaway.tallies.histogram import Histogram
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.sums import Sums, group_of

# Records whose sums are made about one center …
_STRETCH = 1 << 18
# … and of these, records whose columns stay in a core's cache.
_PIECE = 1 << 14


def fold_sums(sums: Sums, batch: Batch, predictor: Predictor | None = None) -> Sums:
    """The sums with the batch taken in; adjusted ones need what makes ỹ of a record."""
    if (predictor is None) == sums.shape.adjusted:
        raise ValueError("adjusted sums, and only these, need a predictor")
    compiled = batch.is_worth_compiling(sums.n)
    empty = Sums.empty(sums.shape)

    def fold(start: int, stop: int) -> Sums:
        folded = empty
        for at in range(start, stop, _STRETCH):
            rows = _Dealt(batch, at, min(at + _STRETCH, stop), sums.shape.groups, _PIECE, compiled)
            pieces = _Adjusted(rows, sums.shape.outcomes, predictor)
            folded = folded.fold_pieces(pieces, compiled=compiled)
        return folded

    for part in on_threads(fold, batch.cuts()):
        sums = sums + part
    return sums


def fold_histogram(histogram: Histogram, batch: Batch, bins: NDArray[np.int16], before: int) -> Histogram:
    """The histogram with the batch taken in, whose records are in these bins, after so many records before."""
    assert batch.arm is not None
    arm, cuts, compiled = batch.arm, batch.cuts(), batch.is_worth_compiling(before)
    into = histogram if len(cuts) == 2 else Histogram.empty(histogram.shape)

    def fold(start: int, stop: int) -> Histogram:
        part = slice(start, stop)
        hashes = None if batch.key is None else batch.key[part]
        weight = None if batch.weight is None else batch.weight[part]
        return into.fold(arm[part], bins[part], hashes, weight, compiled=compiled)

    parts = list(on_threads(fold, cuts))
    return parts[0] if len(parts) == 1 else sum(parts, histogram)


def fold_group_moments(moments: GroupMoments, batch: Batch) -> GroupMoments:
    """The moments with the batch taken in."""
    compiled = batch.is_worth_compiling(moments.n)
    empty = moments.emptied()

    def fold(start: int, stop: int) -> GroupMoments:
        folded = empty
        for at in range(start, stop, STEP):
            step = _PIECE if folded.frame.n else STEP  # a first frame is made from many records
            pieces = _Dealt(batch, at, min(at + STEP, stop), moments.shape.groups, step, compiled)
            folded = folded.fold_pieces(pieces, compiled=compiled)
        return folded

    with one_blas_thread():
        for part in on_threads(fold, batch.cuts()):
            moments = moments + part
    return moments


@dataclass(frozen=True)
class _Dealt:
    """A part of a batch in steps, dealt to cells: piece by piece, as often as it is asked for."""

    batch: Batch
    start: int
    stop: int
    groups: int
    step: int
    compiled: bool

    def __iter__(self) -> Iterator[CellPiece]:
        batch = self.batch
        assert batch.arm is not None
        for at in range(self.start, self.stop, self.step):
            part = slice(at, min(at + self.step, self.stop))
            arm, hashes = batch.arm[part], None if batch.key is None else batch.key[part]
            if self.compiled and hashes is not None:
                from foldaway.numerics.kernels.sums import cells

                cell = cells(arm, hashes, self.groups)
            else:
                cell = cell_of(arm, None if hashes is None else group_of(hashes, self.groups), self.groups)
            yield CellPiece(cell, batch.assemble(part), None, None if batch.weight is None else batch.weight[part])


@dataclass(frozen=True)
class _Adjusted:
    """The same with the outcomes' ỹ, and without covariates."""

    rows: _Dealt
    outcomes: int
    predictor: Predictor | None

    def __iter__(self) -> Iterator[CellPiece]:
        for cell, rows, _, weight in self.rows:
            x, y = rows[1 : len(rows) - self.outcomes], rows[len(rows) - self.outcomes :]
            tilde = None if self.predictor is None else self.predictor.adjusted(x, y, compiled=self.rows.compiled)
            yield CellPiece(cell, y, tilde, weight)
