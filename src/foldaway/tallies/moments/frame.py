"""A frame: the triangular map that rows pass through before they are folded, for conditioning only.

Let F be the triangular factor of earlier rows, divided by its first entry. Rows fold as z F⁻¹, which centres
(the first column is the intercept), scales, takes the covariates out of one another, and takes the covariates
out of each outcome. Second and fourth moments of such rows lose no digits. F is kept, so nothing is lost:
moments change frame exactly, by B = F_old F_new⁻¹.

Exactly, but for rounding. Where columns lean on one another, sums of fourth order lose the fourth power of that when
they leave their frame, and the rows themselves only the first. So rows must be folded in a frame that suits them, one
of their own and further rows, in which they lean on nothing; from there on no change to a frame of still more rows
costs digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.keeping.state import Array
from foldaway.numerics.block import LARGEST, Block, Floats, Shape
from foldaway.numerics.linalg import append_rows, frame_rows

NO_DIRECTION = 1e-13
"""Below this share of a column's length, what is left after the earlier columns is rounding."""

# A frame is left when a column has become this many times as long as the first …
_OUTGROWN = 8
# … or when it takes so much of others to make a column of unit length what it is without them.
_LEANING = 16


@dataclass(slots=True)
class Frame:
    """F (K by K, upper triangular, outcomes not mixed with one another) and the number of records behind it."""

    F: Floats
    n: int

    @classmethod
    def of(cls, R: Floats, shape: Shape, n: int) -> Frame:
        """The frame in which the records behind the factor R are orthonormal up to one common scale."""
        k = shape.regressors
        whole = np.linalg.norm(R, axis=0)
        scale = float(R[0, 0]) or float(np.sqrt(n))
        R, shown = _without_rounding(R, np.maximum(NO_DIRECTION * whole, abs(scale) / LARGEST), k)
        F = np.zeros_like(R, order="F")
        F[:k] = R[:k]
        for column in range(k, shape.columns):
            # One outcome's residuals must not lean on another's: keep their length only.
            F[column, column] = left = np.linalg.norm(R[k : column + 1, column])
            shown[column] = left > max(NO_DIRECTION * whole[column], abs(scale) / LARGEST)
        F /= scale
        whole /= abs(scale)
        for column in np.flatnonzero(~shown).tolist():
            F[column, column] = whole[column] if whole[column] > 1 / LARGEST else 1
        return cls(F, n)

    @classmethod
    def first(cls, block: Block, shape: Shape) -> Frame:
        """The frame that the first records make, as they came."""
        rows = block.rows if block.weight is None else block.rows * np.sqrt(block.weight)
        R = append_rows(np.zeros((len(rows), len(rows)), order="F"), rows.T)
        return cls.of(R, shape, block.n)

    @classmethod
    def restore(cls, kept: Array, n: int, shape: Shape) -> Frame:
        """The frame from its state."""
        F = np.asfortranarray(kept.read(shape.columns, shape.columns))
        if n < 0 or np.any(np.tril(F, -1)) or not np.all(np.diag(F)):
            raise StateError("the state is damaged: a frame cannot be inverted.")
        return cls(F, n)

    def apply(self, block: Block) -> Block:
        """The block's rows in this frame, times the roots of their weights."""
        if block.compiled:
            from foldaway.numerics.kernels import moments

            rows = moments.frame_rows(self.F, block.rows)
        else:
            rows = frame_rows(self.F, block.rows.T).T
        if block.weight is not None:
            rows *= np.sqrt(block.weight)
        return replace(block, rows=rows, weight=None)

    def suits(self, R: Floats, shape: Shape) -> bool:
        """Whether rows with the factor R, in this frame, are nearly orthonormal there up to one common scale.

        A frame of n records suits whatever comes until there are 2n, if it is not far longer than these, but only in
        directions that they have shown. One that they have not shown has the length of the whole column in F.
        """
        k = shape.regressors
        lengths = np.linalg.norm(R, axis=0)
        if lengths.max() > _OUTGROWN * lengths[0] > 0:
            return False
        scaled = R.copy()
        scaled[k:, k:] = np.diag([np.linalg.norm(R[k : column + 1, column]) for column in range(k, shape.columns)])
        scaled[:, lengths <= self._rounding(R)] = 0
        shown = scaled.any(axis=0)
        scaled = scaled[np.ix_(shown, shown)] / lengths[shown]
        left = np.abs(np.diag(scaled))
        return bool(np.all(left * _LEANING > 1) and np.abs(np.linalg.inv(scaled)).max(initial=0.0) < _LEANING)

    def longest(self, R: Floats) -> Floats:
        """How large a row's entries may be, each, for the frame to suit it as it suits the rows with the factor R."""
        lengths, rounding = np.linalg.norm(R, axis=0), self._rounding(R)
        return np.where(lengths > rounding, _OUTGROWN * lengths[0], rounding)

    def _rounding(self, R: Floats) -> Floats:
        """How much, in this frame, rounding leaves of a column that repeats others."""
        lengths: Floats = NO_DIRECTION * np.linalg.norm(R @ self.F, axis=0) / np.abs(np.diag(self.F))
        return lengths

    def change_to(self, other: Frame) -> Floats:
        """B with (row in other) = (row in this frame) B."""
        return np.triu(frame_rows(other.F, self.F))


def _without_rounding(R: Floats, least: Floats, k: int) -> tuple[Floats, NDArray[np.bool_]]:
    """R without directions of no more than the least length, which are rounding, and which of k columns have one.

    Where a column repeats others, what is left of it points anywhere, along with a part of the columns that follow:
    these have to be brought to a triangle once more, without it.
    """
    R, shown = R.copy(order="F"), np.ones(len(R), dtype=bool)
    for column in range(k):
        if abs(R[column, column]) > least[column]:
            continue
        shown[column] = False
        rest = R[column:, column + 1 :]
        R[column + 1 :, column + 1 :] = np.linalg.qr(rest, mode="r")
        R[column, column:] = 0
    return R, shown
