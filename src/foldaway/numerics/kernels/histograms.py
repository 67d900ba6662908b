"""Counts by cell and bin, in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.kernels.compiling import njit, run

Floats = NDArray[np.float64]


def add_counts(cell: NDArray[np.intp], bins: NDArray[np.int16], weight: Floats | None, counts: Floats) -> None:
    """Add records to the histograms of their cells, as `foldaway.numerics.cell_sums.add_counts` does."""
    run(_add_counts, cell, bins, np.empty(0) if weight is None else weight, counts)


@njit
def _add_counts(cell: NDArray[np.intp], bins: NDArray[np.int16], weight: Floats, counts: Floats) -> None:
    weighted = len(weight) > 0
    for i in range(len(cell)):
        if bins[i] >= 0:
            counts[cell[i], bins[i]] += weight[i] if weighted else 1.0
