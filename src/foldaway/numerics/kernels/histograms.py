"""Cells of records, and counts by cell and bin, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.kernels.compiling import njit, run

Floats = NDArray[np.float64]
Arms = NDArray[np.integer[Any]]
Hashes = NDArray[np.uint64]


def cells(arm: Arms, hashes: Hashes, groups: int) -> NDArray[np.intp]:
    """Each record's cell, as `foldaway.tallies.cells.cell_of` has it; its group are the lowest bits of the hash.

    Example:
        >>> cells(np.array([0, 1], dtype=np.int8), np.array([7, 2**63 + 1], dtype=np.uint64), 4)
        array([3, 5])
    """
    cell = np.empty(len(arm), dtype=np.intp)
    run(_cells, arm, hashes, groups, cell)
    return cell


@njit
def _cells(arm: Arms, hashes: Hashes, groups: int, cell: NDArray[np.intp]) -> None:
    for i in range(len(cell)):
        cell[i] = np.intp(arm[i]) * groups + np.intp(hashes[i] & np.uint64(groups - 1))


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
