"""Moments by arm and group: what a trial with covariates holds in memory until its coefficients are fixed.

Per arm and group Σ w z z' of the rows z = [1, x, y]. Any regression without any group follows from it
(`inference/adjusting.py`, `inference/group_regression.py`). It never leaves the process in the open: before a trial is
saved it is mapped to `Sums` and destroyed.

Rows are folded in a frame, which all arms and groups share, so that the normal equations lose no digits. The frame is
made anew whenever it does not suit the records, and from the moments when these have doubled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from foldaway.errors import EstimateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, CellPiece, Cells, Floats, Shape
from foldaway.numerics.linalg import append_rows, frame_rows
from foldaway.tallies.cells import ByCell, Sizes
from foldaway.tallies.moments import Frame


class MomentsShape(NamedTuple):
    """Whose moments: how many arms and groups, the columns of a row, and whether records have observation weights."""

    arms: int
    groups: int
    row: Shape
    weighted: bool = False

    @property
    def adjusted(self) -> bool:
        """Whether rows come with ỹ: that is made of moments later."""
        return False

    @property
    def columns(self) -> int:
        """The length of a row."""
        return self.row.columns

    @property
    def sizes(self) -> Sizes:
        """The arrays that there are."""
        cells, K = (self.arms, self.groups), self.columns
        squared = (*cells, K, K) if self.weighted else None
        absolute = (self.arms, self.row.outcomes)
        return {"records": cells, "moments": (*cells, K, K), "squared": squared, "absolute": absolute}


@dataclass(frozen=True, slots=True)
class GroupMoments(ByCell):
    """The moments.

    Attributes:
        shape: Whose moments.
        frame: What the rows went through.
        records: The number of records, by arm and group.
        moments: Σ w z z' in the frame, by arm and group: (A, G, K, K).
        squared: Σ w² z z', likewise; None without weights.
        absolute: Σ |w y| of the rows as they came, by arm and outcome.

    Example:
        >>> moments = GroupMoments.empty(MomentsShape(2, 4, Shape(2, 1)))
        >>> rows = np.array([[1.0, 1.0, 1.0], [0.5, 2.0, 1.0], [3.0, 5.0, 4.0]])  # 1, x, y
        >>> moments = moments.fold(arm=[0, 1, 1], columns=rows, group=[0, 3, 2])
        >>> F = moments.frame.F
        >>> moments.n, (F.T @ moments.moments[1, 3] @ F).round(9).tolist()
        (3, [[1.0, 2.0, 5.0], [2.0, 4.0, 10.0], [5.0, 10.0, 25.0]])
    """

    shape: MomentsShape
    frame: Frame
    records: Floats
    moments: Floats
    squared: Floats | None
    absolute: Floats

    @classmethod
    def empty(cls, shape: MomentsShape) -> Self:
        """The moments of no records."""
        return cls(shape, frame=Frame(np.eye(shape.columns, order="F"), 0), **cls._zeros(shape))

    @classmethod
    def of_products(cls, shape: MomentsShape, n: int, gram: Floats, means: Floats, absolute: Floats) -> Self:
        """The moments of so many records of the first arm and group, from Σ w r r' of r = (1, z - means).

        With gram = R'R, rows (1, z) have the factor R (1, means; 0, I).
        """
        back = np.eye(shape.columns)
        back[0, 1:] = means[1:]
        R = factor_of(gram) @ back
        frame = Frame.of(R, shape.row, n)
        z = np.linalg.solve(frame.F.T, R.T).T
        made = replace(cls.empty(shape), frame=frame)
        made.records[0, 0], made.moments[0, 0], made.absolute[0] = n, z.T @ z, absolute
        return made

    def emptied(self) -> Self:
        """The moments of no records, in this frame: for another worker to fold into."""
        return replace(self.empty(self.shape), frame=self.frame)

    @property
    def n(self) -> int:
        """The number of records."""
        return int(self.records.sum())

    def fold_pieces(self, pieces: Iterable[CellPiece], *, compiled: bool) -> Self:
        """Take records in that come in pieces, of which the first makes the frame if there is none yet.

        The pieces are gone through a second time if the frame did not suit them.
        """
        there = self
        if not there.frame.n:
            first = next(iter(pieces))
            there = replace(self, frame=Frame.first(Block(first.y, first.weight), self.shape.row))
        made = there._made(pieces, compiled)
        if not there.frame.suits(factor_of(there._whole() + made._whole()), self.shape.row):
            # From the rows: of directions that the frame lacks, products of them have lost the digits.
            R = factor_of(there._whole())
            for piece in pieces:
                rows = there.frame.apply(Block(piece.y, piece.weight)).rows
                R = append_rows(R, np.asfortranarray(rows.T))
            there = there.rebase(Frame.of(R @ there.frame.F, self.shape.row, there.n + made.n))
            made = there._made(pieces, compiled)
        return there._plus(made)

    def _made(self, pieces: Iterable[CellPiece], compiled: bool) -> Self:
        """The moments of these records alone, in this frame."""
        made = self.emptied()
        for piece in pieces:
            made._write(piece, compiled)
        return made

    def _write(self, piece: CellPiece, compiled: bool) -> None:
        """Add a piece's records to these moments, in place."""
        arms, groups, row, _ = self.shape
        cell, rows, _, weight = piece

        def by_cell(values: Floats | None) -> Floats:
            sums = np.bincount(cell, values, arms * groups).reshape(arms, groups)
            return sums.astype(np.float64, copy=False)

        self.records[:] += by_cell(None)
        sizes = np.abs(rows[row.regressors :])
        for o, size in enumerate(sizes if weight is None else sizes * weight):
            self.absolute[:, o] += by_cell(size).sum(axis=1)
        F, cells = self.frame.F, (-1, row.columns, row.columns)
        if compiled:
            from foldaway.numerics.kernels import moments

            add_grams, z = moments.add_grams, moments.frame_rows(F, np.ascontiguousarray(rows))
        else:
            add_grams, z = _add_grams, frame_rows(F, np.asfortranarray(rows.T)).T
        add_grams(z if weight is None else z * np.sqrt(weight), cell, self.moments.reshape(cells))
        if weight is not None and self.squared is not None:
            add_grams(z * weight, cell, self.squared.reshape(cells))

    def __add__(self, other: Self) -> Self:
        """The moments of both sets of records, in the frame of the larger."""
        if self.shape != other.shape:
            raise EstimateError("only moments of the same arms, columns and groups can be added.")
        if not (self.n and other.n):
            return self if self.n else other
        if self.frame.n < other.frame.n:
            return other + self
        B = other.frame.change_to(self.frame)
        R = append_rows(factor_of(self._whole()), np.asfortranarray(factor_of(other._whole()) @ B))
        there = self
        if not self.frame.suits(R, self.shape.row):
            there = self.rebase(Frame.of(R @ self.frame.F, self.shape.row, self.n + other.n))
        return there._plus(other if other.frame is there.frame else other.rebase(there.frame))

    def _plus(self, other: Self) -> Self:
        """Both, which are in one frame."""
        added = replace(self, **self._summed(other))
        return added.reframed() if added.n >= 2 * added.frame.n else added

    def _whole(self) -> Floats:
        whole: Floats = self.moments.sum(axis=(0, 1))
        return whole

    def rebase(self, frame: Frame) -> Self:
        """The same moments in another frame."""
        B = self.frame.change_to(frame)
        squared = None if self.squared is None else B.T @ self.squared @ B
        return replace(self, frame=frame, moments=B.T @ self.moments @ B, squared=squared)

    def reframed(self) -> Self:
        """In the frame that its own records make."""
        R = factor_of(self._whole()) @ self.frame.F
        return self.rebase(Frame.of(R, self.shape.row, self.n))

    def state(self) -> list[Any]:
        """What is exchanged between workers, encrypted."""
        return [self.frame.n, Array.of(self.frame.F), *ByCell.state(self)]

    @classmethod
    def restore(cls, state: Any, shape: MomentsShape) -> Self:
        """The moments from their state."""
        n, F, *kept = decode_part(state, tuple[int, Array, Array, Array, Array | None, Array])
        arrays = cls._read(kept, shape, "moments")
        return cls(shape, frame=Frame.restore(F, n, shape.row), **arrays)

    def __repr__(self) -> str:
        arms, groups, row, _ = self.shape
        return f"GroupMoments: n={self.n:_} | {arms} arms, {groups} groups, {row.columns} columns"


def factor_of(gram: Floats) -> Floats:
    """The triangular factor of rows with this Gram matrix, whose columns may be of any length, or repeat others.

    Example:
        >>> rows = np.array([[1.0, 2.0, 2e-9], [1.0, 5.0, 5e-9], [1.0, 3.0, 3e-9]])
        >>> R = factor_of(rows.T @ rows)
        >>> bool(np.allclose(R.T @ R, rows.T @ rows, rtol=1e-12, atol=0)), bool(R[2, 2] < 1e-15)
        (True, True)
    """
    lengths = np.sqrt(np.maximum(np.diag(gram), 0))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    values, vectors = np.linalg.eigh(gram * scale * scale[:, None])
    rows = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T * lengths
    return append_rows(np.zeros_like(gram, order="F"), np.asfortranarray(rows))


def _add_grams(rows: Floats, cell: Cells, grams: Floats) -> None:
    """Add Σ z z' of each cell: its rows side by side, and one matrix product."""
    z = rows[:, np.argsort(cell.astype(np.int32), kind="stable")]
    counts = np.bincount(cell, minlength=len(grams))
    ends = np.cumsum(counts)
    for c in np.flatnonzero(counts):
        here = z[:, ends[c] - counts[c] : ends[c]]
        grams[c] += here @ here.T
