"""Sums by cell, and ỹ of a block: what NumPy does in a dozen passes over a block, in one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.cell_sums import ABSOLUTE, CROSS, FIRST, MASS, RECORDS, SQUARE, TILDE, TOTAL, WEIGHT
from foldaway.numerics.kernels.compiling import njit, run

Floats = NDArray[np.float64]


def add_sums(
    cell: NDArray[np.intp],
    y: Floats,
    tilde: Floats | None,
    weight: Floats | None,
    about: Floats,
    missing: bool,
    sums: Floats,
) -> None:
    """Add records to the sums of their cells, as `foldaway.numerics.cell_sums.add_sums` does."""
    outcomes = np.ascontiguousarray(y)
    tildes = outcomes[:0] if tilde is None else np.ascontiguousarray(tilde)
    weights = np.empty(0) if weight is None else weight
    run(_add_sums, cell, outcomes, tildes, weights, about, missing, sums)


@njit
def _add_sums(
    cell: NDArray[np.intp], y: Floats, tilde: Floats, weight: Floats, about: Floats, missing: bool, sums: Floats
) -> None:
    adjusted, weighted = len(tilde) > 0, len(weight) > 0
    for o in range(len(y)):
        for i in range(len(cell)):
            v, c = y[o, i], cell[i]
            if missing and v != v:
                continue
            d, e = v - about[c, o, 0], 0.0
            if adjusted:
                e = tilde[o, i] - about[c, o, 1]
            d2, e2, size = d, e, abs(v)
            if weighted:
                w = weight[i]
                mass = w * w
                sums[c, o, WEIGHT] += w
                sums[c, o, MASS] += mass
                d2, e2, size = mass * d, mass * e, w * size
                sums[c, o, FIRST] += d2
                sums[c, o, FIRST + TILDE] += e2
                sums[c, o, TOTAL] += w * d
                sums[c, o, TOTAL + TILDE] += w * e
            else:
                sums[c, o, TOTAL] += d
                sums[c, o, TOTAL + TILDE] += e
            sums[c, o, RECORDS] += 1.0
            sums[c, o, ABSOLUTE] += size
            sums[c, o, SQUARE] += d * d2
            sums[c, o, SQUARE + TILDE] += e * e2
            sums[c, o, CROSS] += d * e2


def adjusted(x: Floats, y: Floats, center: Floats, slopes: Floats) -> Floats:
    """ỹ = y − (x − x̄₀)'β₀ of records: covariates x by records, outcomes y by records.

    Example:
        >>> adjusted(np.array([[11.0, 9.0]]), np.array([[5.0, 5.0]]), np.array([10.0]), np.array([[2.0]]))
        array([[3., 7.]])
    """
    tilde = np.empty_like(y)
    run(_adjust, x, y, center, slopes, tilde)
    return tilde


@njit
def _adjust(x: Floats, y: Floats, center: Floats, slopes: Floats, tilde: Floats) -> None:
    columns, n = x.shape
    for o in range(len(y)):
        for i in range(n):
            rest = y[o, i]
            for j in range(columns):
                rest -= slopes[o, j] * (x[j, i] - center[j])
            tilde[o, i] = rest
