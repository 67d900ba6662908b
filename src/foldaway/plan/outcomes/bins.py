"""Bins of a column: intervals, fixed by the plan, in which a histogram counts records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan.outcomes.binning import MISSING, NUDGE, Codes


class Bins(NamedTuple):
    """Bins between two bounds, and one for all values beyond each of these. Quantiles of equal bins share a histogram.

    Between positive bounds they are logarithmic, each wider than the one before by at most the resolution: a value is
    known to that share of itself. Where the lower bound is not positive there is no such share. They are then of equal
    width, the resolution being a share of the way from bound to bound.

    Attributes:
        column: The column.
        lower: The lowest value that is told apart.
        upper: The highest.
        resolution: The width of a bin.

    Example:
        >>> bins = Bins("latency_ms", 1, 60_000, 0.01)
        >>> bins.number, bins.of(np.array([0.5, 1, 1.02, 60_000, 60_001, np.nan]))
        (1108, array([   0,    1,    2, 1106, 1107,   -1], dtype=int16))
        >>> Bins("change", -50, 50, 0.1).edges.tolist()
        [-50.0, -40.0, -30.0, -20.0, -10.0, 0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """

    column: str
    lower: float
    upper: float
    resolution: float

    @property
    def logarithmic(self) -> bool:
        """Whether they grow with the value."""
        return self.lower > 0

    @property
    def within(self) -> int:
        """How many there are between the bounds."""
        span = (
            math.log(self.upper / self.lower) / math.log1p(self.resolution) if self.logarithmic else 1 / self.resolution
        )
        return max(math.ceil(span - 1e-9), 1)

    @property
    def scale(self) -> float:
        """Bins for each unit of the value above the lower bound, or of the logarithm of its ratio to that."""
        return self.within / (math.log(self.upper / self.lower) if self.logarithmic else self.upper - self.lower)

    @property
    def number(self) -> int:
        """How many there are in all."""
        return self.within + 2

    @property
    def edges(self) -> Floats:
        """Where those between the bounds begin and end."""
        space = np.geomspace if self.logarithmic else np.linspace
        return space(self.lower, self.upper, self.within + 1)

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """By bin, between which two values its records lie."""
        ends = [-math.inf, *self.edges.tolist(), math.inf]
        return list(pairwise(ends))

    @property
    def phrase(self) -> str:
        """What the bins are, for people."""
        return f"{self.number:,} bins from {self.lower:,g} to {self.upper:,g}"

    def codes(self, measured: Mapping[str, Floats]) -> Codes:
        """Each record's bin, from the columns by name."""
        return self.of(measured[self.column])

    def of(self, column: Floats) -> Codes:
        """The bin of each record: 0 below the bounds, the last above them."""
        last = self.within
        place = np.clip(column, self.lower, self.upper)
        if self.logarithmic:
            np.log(np.divide(place, self.lower, out=place), out=place)
        else:
            place -= self.lower
        place *= self.scale
        place += NUDGE
        missing = np.isnan(place)
        place[missing] = 0
        codes: Codes = np.minimum(place, last - 1).astype(np.int16)
        codes += 1
        codes[column < self.lower] = 0
        codes[column > self.upper] = last + 1
        codes[missing] = MISSING
        return codes
