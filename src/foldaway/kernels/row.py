"""One record at a time, compiled: what NumPy's calls would cost is ten times the arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldaway.kernels.compiling import njit

Floats = NDArray[np.float64]


@njit
def fold_row(F: Floats, R: Floats, row: Floats) -> Any:
    """Take one raw row into the factor R of rows in the frame F: O(K²).

    Returns:
        The factor with the row taken in, by Givens rotations, and the row in the frame.

    Example:
        >>> F = np.asfortranarray([[1.0, 3.0], [0.0, 2.0]])
        >>> R, framed = fold_row(F, np.asfortranarray(np.eye(2)), np.array([1.0, 7.0]))
        >>> framed
        array([1., 2.])
        >>> bool(np.allclose(R.T @ R, np.eye(2) + np.outer(framed, framed)))
        True
    """
    K = len(row)
    framed = row.copy()
    for j in range(K):
        rest = framed[j]
        for m in range(j):
            rest -= framed[m] * F[m, j]
        framed[j] = rest / F[j, j]
    out = R.copy()
    left = framed.copy()
    for j in range(K):
        if left[j] == 0.0:
            continue
        length = math.hypot(out[j, j], left[j])
        c, s = out[j, j] / length, left[j] / length
        out[j, j] = length
        for m in range(j + 1, K):
            up, down = out[j, m], left[m]
            out[j, m] = c * up + s * down
            left[m] = c * down - s * up
    return out, framed


@njit
def add_row_products(sums: Floats, row: Floats, k: int) -> Any:
    """The score tally's sums (v v', then v s' and s s' per outcome, flat) with one more record.

    Here v = vech(x x') and s = x y, for a row [x, y] with k regressors.
    """
    m = k * (k + 1) // 2
    outcomes = len(row) - k
    v = np.empty(m)
    a = 0
    for i in range(k):
        for j in range(i, k):
            v[a] = row[i] * row[j]
            a += 1
    out = sums.copy()
    at = 0
    for a in range(m):
        for b in range(m):
            out[at + b] += v[a] * v[b]
        at += m
    for o in range(outcomes):
        y = row[k + o]
        for a in range(m):
            for i in range(k):
                out[at + i] += v[a] * row[i] * y
            at += k
    for o in range(outcomes):
        y = row[k + o]
        for i in range(k):
            for j in range(k):
                out[at + j] += row[i] * y * (row[j] * y)
            at += k
    return out
