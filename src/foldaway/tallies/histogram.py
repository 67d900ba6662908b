"""Histograms: records of an outcome by arm, group of units and bin.

The bins are the plan's. With weights, a bin holds their sum and, where there are no groups, that of their squares. A
histogram says of every record what its value is, to the width of a bin, and nothing else: it is kept, and what is told
are quantiles, and survival curves at times between which enough units have left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import StateError
from foldaway.keeping.state import Array, WholeNumbers, decode_part
from foldaway.numerics.block import Floats
from foldaway.tallies.cells import ByArm, Sizes

MOST_GROUPS = 32
"""Groups of a histogram; a plan's further ones are joined to these. Intervals are 3 % wider than with 128, and what is
kept is a quarter."""


class HistogramShape(NamedTuple):
    """What a histogram is of: arms, groups (a power of two; 1 without units) and bins; whether records have weights."""

    arms: int
    groups: int
    bins: int
    weighted: bool = False

    @property
    def sizes(self) -> Sizes:
        """The arrays that there are: no squares of weights with groups, which give an error without them."""
        return {"counts": self[:3], "squares": (self.arms, self.bins) if self.weighted and self.groups == 1 else None}


class HistogramState(msgspec.Struct, array_like=True):
    """What the tally keeps: counts, or sums of weights and of their squares."""

    counts: WholeNumbers | None
    weights: Array | None
    squares: Array | None


@dataclass(frozen=True, slots=True)
class Histogram(ByArm):
    """A histogram.

    Attributes:
        shape: What it is of.
        counts: The number of records, or Σw, by arm, group and bin.
        squares: Σw² by arm and bin; None without weights, or with groups.

    Example:
        >>> histogram = Histogram.empty(HistogramShape(arms=2, groups=1, bins=4))
        >>> histogram.fold(arm=[0, 1, 1, 1], bins=[1, 2, 2, -1]).counts[1]
        array([[0., 0., 2., 0.]])
    """

    shape: HistogramShape
    counts: Floats
    squares: Floats | None

    def fold(
        self,
        arm: ArrayLike,
        bins: ArrayLike,
        hashes: NDArray[np.uint64] | None = None,
        weight: ArrayLike | None = None,
        *,
        compiled: bool = False,
    ) -> Self:
        """Take records in.

        Args:
            arm: Each record's arm.
            bins: Each record's bin; -1 where it has none.
            hashes: Keyed hashes of their units, whose lowest bits are the group; all are in one group without.
            weight: Observation weights, positive.
            compiled: Whether compiled loops are to serve: loading them pays for many records.
        """
        if (weight is None) == self.shape.weighted:
            raise ValueError("the records do not have the shape of the tally")
        if compiled:
            from foldaway.numerics.kernels.sums import add_counts
        else:
            from foldaway.numerics.cell_sums import add_counts
        counts = self.counts.copy()
        squares = None if self.squares is None else self.squares.copy()
        arms, codes = np.asarray(arm), np.asarray(bins)
        weights = None if weight is None else np.asarray(weight, dtype=np.float64)
        add_counts(arms, hashes, codes, weights, counts)
        if weights is not None and squares is not None:
            add_counts(arms, None, codes, weights**2, squares[:, None])
        return replace(self, counts=counts, squares=squares)

    def __add__(self, other: Self) -> Self:
        """The histogram of both sets of records."""
        return replace(self, **self._summed(other))

    @property
    def n(self) -> int:
        """The number of records that have the outcome; 0 with weights, whose sums do not tell it."""
        return 0 if self.shape.weighted else int(self.counts.sum())

    @property
    def size(self) -> int:
        """How many numbers it is."""
        return sum(array.size for array in self.arrays().values())

    def state(self) -> HistogramState:
        """What is kept."""
        if not self.shape.weighted:
            return HistogramState(WholeNumbers.of(self.counts), None, None)
        return HistogramState(None, Array.of(self.counts), None if self.squares is None else Array.of(self.squares))

    @classmethod
    def restore(cls, state: Any, shape: HistogramShape) -> Self:
        """The histogram from its state."""
        kept = decode_part(state, HistogramState)
        counts = kept.weights if shape.weighted else kept.counts
        if counts is None or (kept.squares is None) != (shape.sizes["squares"] is None):
            raise StateError("the state does not fit its plan: it has other histograms.")
        squares = None if kept.squares is None else kept.squares.read(shape.arms, shape.bins)
        made = cls(shape, counts.read(*shape[:3]), squares)
        if np.any(made.counts < 0) or (squares is not None and np.any(squares < 0)):
            raise StateError("the state is damaged: its counts do not fit.")
        return made
