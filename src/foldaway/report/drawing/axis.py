"""An axis: where numbers lie between its ends, and the round numbers to mark on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from foldaway.table import number

# The axis leaves this much of the width free at each end, so that a label under its last mark is not cut off.
_MARGIN = 6.0

# Numbers that are closer than this cannot be told apart by division.
_NOTHING = 1e-300

_STEPS = (1, 2, 2.5, 5, 10)


class Axis(NamedTuple):
    """From the least to the largest number that it shows."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a number lies, in per cent of the width; the ends for what lies beyond them.

        Example:
            >>> axis = Axis(0.0, 10.0)
            >>> axis.place(0), axis.place(5), axis.place(99)
            (6.0, 50.0, 94.0)
        """
        # Halves, since the difference of two large numbers may be too large.
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return round(_MARGIN + (100 - 2 * _MARGIN) * min(max(share, 0.0), 1.0), 3)

    def ticks(self, most: int = 6) -> list[float]:
        """At most so many round numbers within the axis, evenly apart.

        Example:
            >>> Axis(-0.13, 1.4).ticks(5)
            [0.0, 0.5, 1.0]
        """
        rough = self.high / most - self.low / most
        if not 1e-300 < rough < 1e300:
            return [self.low, self.high]
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s for s in (base * power for base in _STEPS) if s >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * i for i in range(first, last + 1)]

    def labels(self, most: int = 6) -> dict[float, str]:
        """The ticks and what to write at them, all with as many decimals as the step needs."""
        ticks = self.ticks(most)
        step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) if ticks else 1.0
        if not 1e-5 < step < 1e7:
            return {tick: "0" if tick == 0 else number(float(tick), 3) for tick in ticks}
        places = next(p for p in range(8) if abs(round(step, p) - step) < 1e-6 * step)
        return {tick: number(float(tick), places=places) for tick in ticks}


def axis_over(values: Iterable[float], *, symmetric: bool = False) -> Axis:
    """An axis on which zero and all these numbers lie, those that do not exist left out.

    Example:
        >>> axis_over([0.5, 2.0, float("nan")]), axis_over([0.5, -2.0], symmetric=True)
        (Axis(low=0.0, high=2.0), Axis(low=-2.0, high=2.0))
        >>> axis_over([])
        Axis(low=-1.0, high=1.0)
    """
    there = [0.0, *(float(value) for value in values if math.isfinite(value))]
    low, high = min(there), max(there)
    if symmetric:
        low, high = min(low, -high), max(high, -low)
    return Axis(low, high) if high / 2 - low / 2 > _NOTHING else Axis(-1.0, 1.0)
