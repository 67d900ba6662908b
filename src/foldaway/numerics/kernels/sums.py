"""Sums and counts by cell, and ỹ of a block: what NumPy does in a dozen passes over a block, in one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Arms, CellPiece, Cells, Floats, Hashes
from foldaway.numerics.cell_sums import ABSOLUTE, CROSS, FIRST, LANES, MASS, SQUARE, TILDE, CellSums
from foldaway.numerics.kernels.compiling import njit, njit_part, run


def cells(arm: Arms, hashes: Hashes, groups: int) -> Cells:
    """Each record's cell, as `foldaway.tallies.cells.cell_of` has it; its group are the lowest bits of the hash.

    Example:
        >>> cells(np.array([0, 1], dtype=np.int8), np.array([7, 2**63 + 1], dtype=np.uint64), 4)
        array([3, 5])
    """
    cell = np.empty(len(arm), dtype=np.intp)
    run(_cells, arm, hashes, groups, cell)
    return cell


@njit
def _cells(arm: Arms, hashes: Hashes, groups: int, cell: Cells) -> None:
    for i in range(len(cell)):
        cell[i] = np.intp(arm[i]) * groups + np.intp(hashes[i] & np.uint64(groups - 1))


def add_sums(piece: CellPiece, about: Floats, groups: int, missing: bool, sums: CellSums) -> None:
    """Add records to the sums of their cells and arms, as `foldaway.numerics.cell_sums.add_sums` does."""
    run(_add_sums, *_arrays(piece), about, groups, missing, *sums)


def _arrays(piece: CellPiece) -> tuple[Cells, Floats, Floats, Floats]:
    """As compiled loops take them: what is not there is empty."""
    y = np.ascontiguousarray(piece.y)
    tilde = y[:0] if piece.tilde is None else np.ascontiguousarray(piece.tilde)
    return piece.cell, y, tilde, np.empty(0) if piece.weight is None else piece.weight


@njit
def _add_sums(
    cell: Cells,
    y: Floats,
    tilde: Floats,
    weight: Floats,
    about: Floats,
    groups: int,
    missing: bool,
    records: Floats,
    weights: Floats,
    total: Floats,
    second: Floats,
) -> None:
    adjusted, weighted, shift = len(tilde) > 0, len(weight) > 0, np.uintp(_shift(groups))
    lanes = np.uintp(LANES - 1)
    for o in range(len(y)):
        counted, t = missing or o == 0, o + len(y)
        for i in range(len(cell)):
            v, c = y[o, i], np.uintp(cell[i])  # an index without a sign needs no check of it
            if missing and v != v:
                continue
            w = weight[i] if weighted else 1.0
            arm, lane = c >> shift, c & lanes
            d1 = w * (v - about[arm, o, 0])
            if counted:
                records[c, o] += 1.0
                if weighted:
                    weights[c, o] += w
                    second[arm, lane, o, MASS] += w * w
            total[c, o] += d1
            second[arm, lane, o, ABSOLUTE] += w * abs(v)
            second[arm, lane, o, SQUARE] += d1 * d1
            if weighted:
                second[arm, lane, o, FIRST] += w * d1
            if adjusted:
                e1 = w * (tilde[o, i] - about[arm, o, 1])
                total[c, t] += e1
                second[arm, lane, o, SQUARE + TILDE] += e1 * e1
                second[arm, lane, o, CROSS] += d1 * e1
                if weighted:
                    second[arm, lane, o, FIRST + TILDE] += w * e1


@njit_part
def _shift(groups: int) -> int:
    """How often a power of two is to be halved."""
    shift = 0
    while 1 << shift < groups:
        shift += 1
    return shift


def add_joint(piece: CellPiece, about: Floats, groups: int, missing: bool, pairs: Cells, joint: Floats) -> None:
    """Add products of pairs of outcomes to those of their cells, as `foldaway.numerics.cell_sums.add_joint` does."""
    run(_add_joint, *_arrays(piece), about, groups, missing, pairs, joint)


@njit
def _add_joint(
    cell: Cells,
    y: Floats,
    tilde: Floats,
    weight: Floats,
    about: Floats,
    groups: int,
    missing: bool,
    pairs: Cells,
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


def add_counts(
    arm: Arms, hashes: Hashes | None, bins: NDArray[np.int16], weight: Floats | None, counts: Floats
) -> None:
    """Add records to the histograms of their cells, as `foldaway.numerics.cell_sums.add_counts` does."""
    units = np.empty(0, dtype=np.uint64) if hashes is None else hashes
    run(_add_counts, arm, units, bins, np.empty(0) if weight is None else weight, counts)


@njit
def _add_counts(arm: Arms, hashes: Hashes, bins: NDArray[np.int16], weight: Floats, counts: Floats) -> None:
    grouped, weighted = len(hashes) > 0, len(weight) > 0
    mask = np.uint64(counts.shape[1] - 1)
    for i in range(len(arm)):
        if bins[i] >= 0:
            group = np.intp(hashes[i] & mask) if grouped else 0
            counts[arm[i], group, bins[i]] += weight[i] if weighted else 1.0
