"""Scores corrected for leverage, from products of a device's rows alone.

With H = X V X', V the published bread, the corrected score is X'(I − H)^p E, where p is −1/2 for CR2 and −1 for CR3.
With V = C C' and the eigenvalues λ and eigenvectors W of C'X'X C, it is

    X'E + X'X C W diag(((1 − λ)^p − 1) / λ) W'C' X'E.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Matrix = list[list[float]]

_POWER = {"CR2": -0.5, "CR3": -1.0}

# A direction of which no more than this is left is one that the device alone determines: it is left out.
_ALONE = 1e-8


def corrected(XX: Matrix, XE: Matrix, bread: Matrix, kind: str) -> Matrix:
    """The corrected score, as large as XE.

    Example:
        >>> corrected([[2.0]], [[4.0]], [[1 / 8]], "CR3")  # two rows of 1, with residuals 1 and 3
        [[5.333333333333333]]
    """
    values, vectors = eigen(bread)
    roots = [math.sqrt(max(value, 0.0)) for value in values]
    C = [[entry * root for entry, root in zip(row, roots, strict=True)] for row in vectors]
    shares, W = eigen(product(transposed(C), product(XX, C)))
    CW = product(C, W)
    inner = product(transposed(CW), XE)
    scaled = [[_gain(share, _POWER[kind]) * entry for entry in row] for share, row in zip(shares, inner, strict=True)]
    added = product(XX, product(CW, scaled))
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(XE, added, strict=True)]


def _gain(share: float, power: float) -> float:
    """((1 − λ)^p − 1) / λ, without loss of digits where λ is small."""
    if share <= 0:
        return -power
    return (-1.0 if 1 - share <= _ALONE else math.expm1(power * math.log1p(-share))) / share


def transposed(A: Matrix) -> Matrix:
    """A'."""
    return [list(column) for column in zip(*A, strict=True)]


def product(A: Matrix, B: Matrix) -> Matrix:
    """A B."""
    return [[math.fsum(map(_times, row, column)) for column in zip(*B, strict=True)] for row in A]


_times: Callable[[float, float], float] = float.__mul__


def eigen(A: Matrix) -> tuple[list[float], Matrix]:
    """The eigenvalues of a symmetric matrix, and its eigenvectors in columns, by Jacobi's rotations.

    Example:
        >>> sorted(eigen([[2.0, 1.0], [1.0, 2.0]])[0])
        [1.0, 3.0]
    """
    A, n = [row[:] for row in A], len(A)
    V = [[float(i == j) for j in range(n)] for i in range(n)]
    for _ in range(60):
        if not any(A[i][j] for i in range(n) for j in range(i)):
            break
        for p in range(n):
            for q in range(p + 1, n):
                _rotate(A, V, p, q)
    return [A[i][i] for i in range(n)], V


def _rotate(A: Matrix, V: Matrix, p: int, q: int) -> None:
    """Make A[p][q] zero."""
    if abs(A[p][q]) <= 1e-18 * (abs(A[p][p]) + abs(A[q][q])):
        A[p][q] = A[q][p] = 0.0
        return
    theta = (A[q][q] - A[p][p]) / (2 * A[p][q])
    t = math.copysign(1.0, theta) / (abs(theta) + math.hypot(theta, 1.0))
    cosine = 1 / math.hypot(t, 1.0)
    sine = t * cosine
    for M in (A, V):
        for row in M:
            row[p], row[q] = cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]
    above, below = A[p], A[q]
    A[p] = [cosine * a - sine * b for a, b in zip(above, below, strict=True)]
    A[q] = [sine * a + cosine * b for a, b in zip(above, below, strict=True)]
    A[p][q] = A[q][p] = 0.0
