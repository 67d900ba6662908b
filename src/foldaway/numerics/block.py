"""Records as plain numeric arrays, past which nobody sees a name or an identifier: blocks of one arm, or by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Arms = NDArray[np.integer[Any]]
Hashes = NDArray[np.uint64]
Cells = NDArray[np.intp]

# Larger than this, a product of four values and two weights could leave the range of double precision.
LARGEST = 1e40


class Shape(NamedTuple):
    """How many of a row's columns are regressors (intercept first) and how many are outcomes."""

    regressors: int
    outcomes: int

    @property
    def columns(self) -> int:
        """K, the length of a row z = [1, x, y]."""
        return self.regressors + self.outcomes

    @property
    def pairs(self) -> int:
        """m, the length of vech(x x')."""
        return self.regressors * (self.regressors + 1) // 2


@dataclass(slots=True)
class Block:
    """Records of one arm.

    Attributes:
        rows: K by n; column i is record i's z = [1, x, y], so that each variable lies contiguous.
        weight: Observation weights, if the plan has them.
        unit: For each record the number of its unit within this block, in rising order, if units are
            complete within the block.
        key: For each record the hash of its unit (or of its own number) under the trial's key.
        compiled: Whether compiled loops are to serve it: loading them pays once many records have come.
        stands_for: How many records the rows stand for, where they are not one row each: the triangular factor of
            many records has their second moments in K rows.
    """

    rows: Floats
    weight: Floats | None = None
    unit: NDArray[np.int64] | None = None
    key: NDArray[np.uint64] | None = None
    compiled: bool = False
    stands_for: int | None = None

    @property
    def n(self) -> int:
        """The number of records."""
        return len(self) if self.stands_for is None else self.stands_for

    def __len__(self) -> int:
        return int(self.rows.shape[1])


class CellPiece(NamedTuple):
    """Some records: their cells, columns by records, the ỹ of outcomes and observation weights, if there are any."""

    cell: Cells
    y: Floats
    tilde: Floats | None
    weight: Floats | None
