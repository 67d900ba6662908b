"""A frame: the triangular map that rows pass through before they are folded, for conditioning only.

Let F be the triangular factor of earlier rows, divided by its first entry. Rows fold as z F⁻¹, which centres
(the first column is the intercept), scales, takes the covariates out of one another, and takes the covariates
out of each outcome. Second and fourth moments of such rows lose no digits. F is kept, so nothing is lost:
moments change frame exactly, by B = F_old F_new⁻¹.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foldaway.numerics.block import LARGEST, Block, Floats, Shape
from foldaway.numerics.linalg import frame_rows

# Below this share of a column's length what is left after the earlier columns is rounding: no direction.
_NO_DIRECTION = 1e-13


@dataclass(slots=True)
class Frame:
    """F (K by K, upper triangular, outcomes not mixed with one another) and the number of records behind it."""

    F: Floats
    n: int

    @classmethod
    def of(cls, R: Floats, shape: Shape, n: int) -> Frame:
        """The frame in which the records behind the factor R are orthonormal up to one common scale."""
        k = shape.regressors
        F = np.zeros_like(R, order="F")
        F[:k] = R[:k]
        for column in range(k, shape.columns):
            # One outcome's residuals must not lean on another's: keep their length only.
            F[column, column] = np.linalg.norm(R[k : column + 1, column])
        scale = F[0, 0] if F[0, 0] != 0 else float(np.sqrt(n))
        F /= scale
        lengths = np.linalg.norm(F, axis=0)
        for degenerate in np.flatnonzero(np.abs(np.diag(F)) <= np.maximum(_NO_DIRECTION * lengths, 1 / LARGEST)):
            F[degenerate, degenerate + 1 :] = 0
            F[degenerate, degenerate] = lengths[degenerate] if lengths[degenerate] > 1 / LARGEST else 1
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

    def change_to(self, other: Frame) -> Floats:
        """B with (row in other) = (row in this frame) B."""
        return np.triu(frame_rows(other.F, self.F))
