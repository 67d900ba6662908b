"""Bins of exits: when a unit left, and whether by its event or with its event still to come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan.outcomes.binning import MISSING, NUDGE, Codes


class Exits(NamedTuple):
    """Two bins for each stretch of time, of exits by the event and of all others; and two for exits at time zero.

    A time counts as the end of its stretch: it is rounded up. What is read from the histogram is therefore exactly
    what the rounded times give. An exit later than `until` is one without the event, at `until`.

    Attributes:
        column: The column of times.
        event: The column that is 1 where the event came, and 0 where it did not.
        until: The end of follow-up.
        stretches: How many stretches of equal length there are.

    Example:
        >>> exits = Exits("days", "relapsed", until=10, stretches=2)
        >>> exits.ends.tolist(), exits.number
        ([0.0, 5.0, 10.0], 6)
        >>> days, relapsed = np.array([0, 1, 5, 5.1, 10, 11, np.nan]), np.array([0, 1, 0, 1, 1, 1, 1])
        >>> exits.codes({"days": days, "relapsed": relapsed}).tolist()
        [0, 3, 2, 5, 5, 4, -1]
    """

    column: str
    event: str
    until: float
    stretches: int

    @property
    def number(self) -> int:
        """How many bins there are in all."""
        return 2 * (self.stretches + 1)

    @property
    def width(self) -> float:
        """The length of a stretch."""
        return self.until / self.stretches

    @property
    def ends(self) -> Floats:
        """The times that exits count as."""
        return np.linspace(0, self.until, self.stretches + 1)

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """By bin, between which two times its records lie."""
        ends = self.ends.tolist()
        before = [0.0, *ends[:-1]]
        found = [(low, high) for low, high in zip(before, ends, strict=True) for _ in range(2)]
        found[-2] = before[-1], math.inf
        return found

    @property
    def phrase(self) -> str:
        """What the bins are, for people."""
        return f"exits with or without the event in {self.stretches:,} stretches of {self.width:,g}"

    def codes(self, measured: Mapping[str, Floats]) -> Codes:
        """Each record's bin, from the columns by name; what a faulty record's is does not matter."""
        time, event = measured[self.column], measured[self.event]
        missing = np.isnan(time) | np.isnan(event)
        with np.errstate(invalid="ignore"):
            end = np.ceil(np.where(missing, 0.0, time) * (self.stretches / self.until) - NUDGE)
        within = (end <= self.stretches) & (event == 1)
        codes: Codes = (2 * np.clip(end, 0, self.stretches)).astype(np.int16)
        codes += within
        codes[missing] = MISSING
        return codes
