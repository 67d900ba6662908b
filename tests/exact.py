"""Arithmetic with more digits than double precision, for tests that count digits."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats

Long = NDArray[np.longdouble]


def exact_coefficients(X: Floats, y: Floats) -> Floats:
    """Least squares in rational numbers: the coefficients of these very doubles, rounded once at the end."""
    k = X.shape[1]
    solved = _eliminated(_rational(X, y), k)
    return np.array([float(solved[i][k]) for i in range(k)])


def exact_regression(X: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Coefficients and classical standard errors in rational numbers, rounded at the root of the latter and the end."""
    n, k = X.shape
    rows = _rational(X, y)
    solved = _eliminated(rows, k, inverse=True)
    coef = [solved[i][k] for i in range(k)]
    rss = _dot(rows, k, k) - sum((coef[i] * _dot(rows, i, k) for i in range(k)), Fraction(0))
    variances = [solved[i][k + 1 + i] * rss / (n - k) for i in range(k)]
    return np.array([float(b) for b in coef]), np.sqrt([float(v) for v in variances])


def _rational(X: Floats, y: Floats) -> list[list[Fraction]]:
    return [[Fraction(float(v)) for v in (*row, t)] for row, t in zip(X, y, strict=True)]


def _eliminated(rows: Sequence[Sequence[Fraction]], k: int, *, inverse: bool = False) -> list[list[Fraction]]:
    """The normal equations brought to [I, coefficients] and, if asked for, the inverse beside."""
    normal = [[_dot(rows, i, j) for j in range(k + 1)] for i in range(k)]
    if inverse:
        normal = [row + [Fraction(int(i == j)) for j in range(k)] for i, row in enumerate(normal)]
    for pivot in range(k):  # the normal matrix is positive definite: no exchange is needed
        normal[pivot] = [a / normal[pivot][pivot] for a in normal[pivot]]
        for row in range(k):
            if row != pivot:
                factor = normal[row][pivot]
                normal[row] = [a - factor * b for a, b in zip(normal[row], normal[pivot], strict=True)]
    return normal


def _dot(rows: Sequence[Sequence[Fraction]], i: int, j: int) -> Fraction:
    return sum((row[i] * row[j] for row in rows), Fraction(0))


def long_qr(columns: Floats) -> tuple[Long, Long]:
    """Q and R in extended precision, by Gram–Schmidt done twice; R has a positive diagonal."""
    rest = columns.astype(np.longdouble)
    n, k = rest.shape
    Q, R = np.zeros((n, k), np.longdouble), np.zeros((k, k), np.longdouble)
    for j in range(k):
        column = rest[:, j].copy()
        for _ in range(2):
            share = Q[:, :j].T @ column
            R[:j, j] += share
            column -= Q[:, :j] @ share
        R[j, j] = np.sqrt(column @ column)
        Q[:, j] = column / R[j, j]
    return Q, R


def long_regression(X: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Coefficients, classical and HC0 standard errors in extended precision."""
    Q, R = long_qr(X)
    response = y.astype(np.longdouble)
    share = Q.T @ response
    residuals = response - Q @ share
    correction = Q.T @ residuals
    residuals -= Q @ correction
    inverse = _inverse(R)
    n, k = X.shape
    classical = np.sqrt(np.sum(inverse**2, axis=1) * (residuals @ residuals) / (n - k))
    half = inverse @ (Q * residuals[:, None]).T
    coef = inverse @ (share + correction)
    return coef.astype(float), classical.astype(float), np.sqrt(np.sum(half**2, axis=1)).astype(float)


def _inverse(R: Long) -> Long:
    k = len(R)
    inverse = np.zeros((k, k), np.longdouble)
    for column in range(k):
        for row in range(column, -1, -1):
            rest = np.longdouble(row == column) - R[row, row + 1 :] @ inverse[row + 1 :, column]
            inverse[row, column] = rest / R[row, row]
    return inverse


def digits(ours: Floats, truth: Floats) -> float:
    """Correct digits of the worst number: NIST's log relative error (log absolute error where the truth is zero)."""
    error = np.abs(np.asarray(ours) - truth) / np.where(truth == 0, 1, np.abs(truth))
    return float(-np.log10(max(float(np.max(error)), 1e-16)))
