"""The triangular factor R of the rows folded so far, R'R = Σ z z'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.linalg import append_rows, cholesky
from foldaway.tallies.moments.tally import CountedArray

# Blocks with fewer rows than this many times K go through Householder QR without further thought.
_TALL = 16

# Cholesky of the block's Gram matrix is used where every column keeps at least this share of its squared
# length once the columns before it are taken out: then squaring costs less than two digits in the worst case.
_INDEPENDENT = 0.05

# When rows are taken out, this share of a squared length is rounding.
_LEFT = 1e-12


@dataclass(slots=True)
class Factor:
    """The number of records and the triangular factor of their rows.

    The factor of tall blocks comes from their Gram matrix, which BLAS forms several times faster than a QR.
    That is safe only because the rows come in a frame, where they are nearly orthonormal; a block for which it
    is not safe goes through Householder QR. Factors merge by stacking and factoring again.
    """

    n: int
    R: Floats

    @classmethod
    def empty(cls, shape: Shape) -> Self:
        """The factor of no rows."""
        return cls(0, np.zeros((shape.columns, shape.columns), order="F"))

    def fold(self, block: Block) -> Self:
        """Take the block's rows in."""
        rows = block.rows
        if len(block) >= _TALL * len(rows):
            if block.compiled:
                from foldaway.numerics.kernels.moments import gram

                sums = gram(rows)
            else:
                sums = rows @ rows.T
            triangle = cholesky(sums)
            if triangle is not None and not np.any(np.diag(triangle) ** 2 < _INDEPENDENT * np.diag(sums)):
                return type(self)(self.n + block.n, append_rows(self.R, triangle))
        return type(self)(self.n + block.n, append_rows(self.R, rows.T))

    def __add__(self, other: Self) -> Self:
        """The factor of both sets of rows."""
        return type(self)(self.n + other.n, append_rows(self.R, other.R))

    def without(self, other: Self) -> Self:
        """The factor without rows that are in it; both in a frame in which its own rows are nearly orthonormal.

        There, forming Gram matrices costs no digits. What is left of a direction that only these rows had is rounding.
        """
        gram = self.R.T @ self.R
        least = _LEFT * np.diag(gram)
        gram -= other.R.T @ other.R
        R = np.zeros_like(self.R)
        for i, pivot in enumerate(least):
            if gram[i, i] > pivot:
                R[i, i:] = gram[i, i:] / np.sqrt(gram[i, i])
                gram[i:, i:] -= np.outer(R[i, i:], R[i, i:])
        return type(self)(self.n - other.n, R)

    def rebase(self, B: Floats) -> Self:
        """R B is again triangular, for B is."""
        return type(self)(self.n, np.asfortranarray(self.R @ B))

    def state(self) -> CountedArray:
        """What is saved."""
        return CountedArray(self.n, Array.of(self.R))

    def restored(self, state: Any) -> Self:
        """The factor from its state."""
        saved = decode_part(state, CountedArray)
        R = np.asfortranarray(saved.array.read(*self.R.shape))
        if saved.n < 0 or np.any(np.tril(R, -1)):
            raise StateError("the state is damaged: a factor is not triangular.")
        return type(self)(saved.n, R)
