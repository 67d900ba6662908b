"""What is kept of a cell's trials: how often its interval covered, and its errors beside the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

from studies.coverage.designs import EFFECT


class Found(NamedTuple):
    """What one trial says in one cell; by statsmodels on the rows as well, where it has the interval."""

    estimate: float
    std_error: float
    covers: bool
    kept_covers: bool | None = None
    apart: float | None = None


@dataclass
class Hits:
    """Sums over a cell's trials.

    Attributes:
        trials: How many there were.
        covered: In how many the interval held the effect.
        kept_trials: How many statsmodels gave an interval for.
        kept_covered: In how many of those it held the effect.
        apart: The largest difference between the two, of standard errors as a share of the error, or of estimates in
            standard errors.
    """

    trials: int = 0
    covered: int = 0
    kept_trials: int = 0
    kept_covered: int = 0
    apart: float = 0.0
    deviation: float = 0.0
    squared_deviation: float = 0.0
    squared_error: float = 0.0

    def add(self, found: Found) -> None:
        """Take one trial in."""
        deviation = found.estimate - EFFECT
        self.trials += 1
        self.covered += found.covers
        self.kept_trials += found.kept_covers is not None
        self.kept_covered += bool(found.kept_covers)
        self.apart = max(self.apart, found.apart or 0.0)
        self.deviation += deviation
        self.squared_deviation += deviation**2
        self.squared_error += found.std_error**2

    def __add__(self, other: Self) -> Hits:
        return Hits(
            self.trials + other.trials,
            self.covered + other.covered,
            self.kept_trials + other.kept_trials,
            self.kept_covered + other.kept_covered,
            max(self.apart, other.apart),
            self.deviation + other.deviation,
            self.squared_deviation + other.squared_deviation,
            self.squared_error + other.squared_error,
        )

    @property
    def coverage(self) -> float:
        """The share of trials whose interval held the effect."""
        return self.covered / self.trials if self.trials else math.nan

    @property
    def kept_coverage(self) -> float:
        """The same by statsmodels."""
        return self.kept_covered / self.kept_trials if self.kept_trials else math.nan

    @property
    def ratio(self) -> float:
        """The root mean square of the standard errors, to the standard deviation of the estimate."""
        variance = self.squared_deviation / self.trials - (self.deviation / self.trials) ** 2
        return math.sqrt(self.squared_error / self.trials / variance) if variance > 0 else math.nan
