"""Sums by cell, and ỹ of a block: what NumPy does in a dozen passes over a block, in one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.cell_sums import ABSOLUTE, CROSS, FIRST, MASS, RECORDS, SQUARE, TILDE, TOTAL, WEIGHT
from foldaway.numerics.kernels.compiling import njit, njit_part, run

Floats = NDArray[np.float64]


def add_sums(
    cell: NDArray[np.intp],
    y: Floats,
    tilde: Floats | None,
    weight: Floats | None,
    about: Floats,
    groups: int,
    missing: bool,
    sums: Floats,
) -> None:
    """Add records to the sums of their cells, as `foldaway.numerics.cell_sums.add_sums` does."""
    run(_add_sums, cell, *_arrays(y, tilde, weight), about, groups, missing, sums)


def _arrays(y: Floats, tilde: Floats | None, weight: Floats | None) -> tuple[Floats, Floats, Floats]:
    """As compiled loops take them: what is not there is empty."""
    outcomes = np.ascontiguousarray(y)
    tildes = outcomes[:0] if tilde is None else np.ascontiguousarray(tilde)
    return outcomes, tildes, np.empty(0) if weight is None else weight


@njit
def _add_sums(
    cell: NDArray[np.intp],
    y: Floats,
    tilde: Floats,
    weight: Floats,
    about: Floats,
    groups: int,
    missing: bool,
    sums: Floats,
) -> None:
    adjusted, weighted, shift = len(tilde) > 0, len(weight) > 0, np.uintp(_shift(groups))
    for o in range(len(y)):
        counted = missing or o == 0
        for i in range(len(cell)):
            v, c = y[o, i], np.uintp(cell[i])  # an index without a sign needs no check of it
            if missing and v != v:
                continue
            w = weight[i] if weighted else 1.0
            d = v - about[c >> shift, o, 0]
            if counted:
                sums[c, o, RECORDS] += 1.0
                if weighted:
                    sums[c, o, WEIGHT] += w
                    sums[c, o, MASS] += w * w
            d1 = w * d
            sums[c, o, TOTAL] += d1
            sums[c, o, ABSOLUTE] += w * abs(v)
            sums[c, o, SQUARE] += d1 * d1
            if weighted:
                sums[c, o, FIRST] += w * d1
            if adjusted:
                e1 = w * (tilde[o, i] - about[c >> shift, o, 1])
                sums[c, o, TOTAL + TILDE] += e1
                sums[c, o, SQUARE + TILDE] += e1 * e1
                sums[c, o, CROSS] += d1 * e1
                if weighted:
                    sums[c, o, FIRST + TILDE] += w * e1


@njit_part
def _shift(groups: int) -> int:
    """How often a power of two is to be halved."""
    shift = 0
    while 1 << shift < groups:
        shift += 1
    return shift


def add_joint(
    cell: NDArray[np.intp],
    y: Floats,
    tilde: Floats | None,
    weight: Floats | None,
    about: Floats,
    groups: int,
    missing: bool,
    pairs: NDArray[np.intp],
    joint: Floats,
) -> None:
    """Add products of pairs of outcomes to those of their cells, as `foldaway.numerics.cell_sums.add_joint` does."""
    run(_add_joint, cell, *_arrays(y, tilde, weight), about, groups, missing, pairs, joint)


@njit
def _add_joint(
    cell: NDArray[np.intp],
    y: Floats,
    tilde: Floats,
    weight: Floats,
    about: Floats,
    groups: int,
    missing: bool,
    pairs: NDArray[np.intp],
    joint: Floats,
) -> None:
    adjusted, weighted, shift = len(tilde) > 0, len(weight) > 0, np.uintp(_shift(groups))
    for p in range(len(pairs)):
        a, b = pairs[p]
        for i in range(len(cell)):
            c, arm = np.uintp(cell[i]), np.uintp(cell[i]) >> shift
            u, v = y[a, i] - about[arm, a, 0], y[b, i] - about[arm, b, 0]
            if missing and (u != u or v != v):
                continue
            mass = weight[i] * weight[i] if weighted else 1.0
            joint[c, p, 0, 0] += mass * u * v
            if adjusted:
                s, t = tilde[a, i] - about[arm, a, 1], tilde[b, i] - about[arm, b, 1]
                joint[c, p, 0, 1] += mass * u * t
                joint[c, p, 1, 0] += mass * s * v
                joint[c, p, 1, 1] += mass * s * t


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
