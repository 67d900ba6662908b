"""One record at a time, compiled: what NumPy's calls would cost is many times the arithmetic."""

from __future__ import annotations

import math

import numpy as np

from foldaway.numerics.block import LARGEST, Floats
from foldaway.numerics.kernels.compiling import njit


@njit
def take_row(F: Floats, R: Floats, sums: Floats, row: Floats, k: int, most: Floats) -> bool:
    """Take one raw row into a factor and a score tally, in place: O(K²), and O(k⁴) for the score tally.

    Args:
        F: The frame.
        R: The factor of the rows so far, in the frame.
        sums: The score tally's sums (v v', then v s' and s s' per outcome, flat); empty if there is none.
        row: The row [x, y]; overwritten with what is left of it.
        k: How many of its entries are regressors.
        most: How large its entries may be, in the frame, for the frame to suit it.

    Returns:
        False, with nothing changed, if the row has a number that is missing, infinite or too large.

    Example:
        >>> F, R = np.asfortranarray([[1.0, 3.0], [0.0, 2.0]]), np.asfortranarray(np.eye(2))
        >>> most = np.array([9.0, 9.0])
        >>> take_row(F, R, np.empty(0), np.array([1.0, 7.0]), 1, most)  # (1, 7) is (1, 2) in the frame
        True
        >>> bool(np.allclose(R.T @ R, np.eye(2) + np.outer([1, 2], [1, 2])))
        True
        >>> take_row(F, R, np.empty(0), np.array([1.0, np.nan]), 1, most)
        False
    """
    K = len(row)
    size = 0.0
    for j in range(K):
        size += row[j] * row[j]
    if not size < LARGEST:
        return False
    for j in range(K):
        rest = row[j]
        for m in range(j):
            rest -= row[m] * F[m, j]
        row[j] = rest / F[j, j]
    for j in range(K):
        if abs(row[j]) > most[j]:
            return False
    if len(sums):
        _add_products(sums, row, k)
    for j in range(K):
        if row[j] == 0.0:
            continue
        length = math.hypot(R[j, j], row[j])
        c, s = R[j, j] / length, row[j] / length
        R[j, j] = length
        for m in range(j + 1, K):
            up, down = R[j, m], row[m]
            R[j, m] = c * up + s * down
            row[m] = c * down - s * up
    return True


@njit
def _add_products(sums: Floats, row: Floats, k: int) -> None:
    """Add v v', v s' and s s' of one framed record, for v = vech(x x') and s = x y."""
    m = k * (k + 1) // 2
    outcomes = len(row) - k
    v = np.empty(m)
    a = 0
    for i in range(k):
        for j in range(i, k):
            v[a] = row[i] * row[j]
            a += 1
    at = 0
    for a in range(m):
        for b in range(m):
            sums[at + b] += v[a] * v[b]
        at += m
    for o in range(outcomes):
        y = row[k + o]
        for a in range(m):
            for i in range(k):
                sums[at + i] += v[a] * row[i] * y
            at += k
    for o in range(outcomes):
        y = row[k + o]
        for i in range(k):
            for j in range(k):
                sums[at + j] += row[i] * y * (row[j] * y)
            at += k
