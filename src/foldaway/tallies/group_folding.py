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
            pieces = _Pieces(sums, batch, predictor, at, min(at + _STRETCH, stop), compiled)
            folded = folded.fold_pieces(pieces, compiled=compiled)
        return folded

    for part in on_threads(fold, batch.cuts()):
        sums = sums + part
    return sums


def fold_histogram(histogram: Histogram, batch: Batch, bins: NDArray[np.int16]) -> Histogram:
    """The histogram with the batch taken in, whose records are in these bins."""
    assert batch.arm is not None
    arm, cuts, compiled = batch.arm, batch.cuts(), batch.is_worth_compiling(0)
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
            pieces = _dealt(batch, at, min(at + STEP, stop), moments.shape.groups, step, compiled)
            folded = folded.fold_pieces(pieces, compiled=compiled)
        return folded

    with one_blas_thread():
        for part in on_threads(fold, batch.cuts()):
            moments = moments + part
    return moments


@dataclass(frozen=True)
class _Pieces:
    """A stretch of a batch, piece by piece, as often as it is asked for."""

    sums: Sums
    batch: Batch
    predictor: Predictor | None
    start: int
    stop: int
    compiled: bool

    def __iter__(self) -> Iterator[CellPiece]:
        shape = self.sums.shape
        for cell, rows, _, weight in _dealt(self.batch, self.start, self.stop, shape.groups, _PIECE, self.compiled):
            x, y = rows[1 : len(rows) - shape.outcomes], rows[len(rows) - shape.outcomes :]
            tilde = None if self.predictor is None else self.predictor.adjusted(x, y, compiled=self.compiled)
            yield CellPiece(cell, y, tilde, weight)


def _dealt(batch: Batch, start: int, stop: int, groups: int, step: int, compiled: bool) -> Iterator[CellPiece]:
    """A part of the batch in steps, dealt to cells."""
    assert batch.arm is not None
    for at in range(start, stop, step):
        part = slice(at, min(at + step, stop))
        arm, hashes = batch.arm[part], None if batch.key is None else batch.key[part]
        if compiled and hashes is not None:
            from foldaway.numerics.kernels.sums import cells

            cell = cells(arm, hashes, groups)
        else:
            cell = cell_of(arm, None if hashes is None else group_of(hashes, groups), groups)
        yield CellPiece(cell, batch.assemble(part), None, None if batch.weight is None else batch.weight[part])
