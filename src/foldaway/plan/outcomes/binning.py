"""How a plan bins records for a histogram, whatever is read from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats

Codes = NDArray[np.int16]

MISSING = -1
"""The bin of a record that lacks what is binned."""

MOST_BINS = 10_000
"""In a histogram; each arm and group has so many counts."""

NUDGE = 1e-9
"""So close to an edge, in widths of a bin, a value counts as on it, whatever rounding has done to it."""


class Binning(Protocol):
    """Bins of one histogram. Outcomes with equal binnings share it."""

    @property
    def column(self) -> str:
        """The column that is binned."""

    @property
    def number(self) -> int:
        """How many bins there are."""

    @property
    def ranges(self) -> Sequence[tuple[float, float]]:
        """By bin, between which two values of the column its records lie."""

    @property
    def phrase(self) -> str:
        """What the bins are, for people."""

    def codes(self, measured: Mapping[str, Floats]) -> Codes:
        """Each record's bin, from the columns by name; `MISSING` where it lacks one."""
