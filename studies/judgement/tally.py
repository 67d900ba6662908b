"""What is kept of a cell's trials: for each figure its number, sum and sum of squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from studies.judgement.design import Notes


@dataclass
class Sum:
    """Of the trials that had something to say."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Their mean; NaN if there are none."""
        return self.total / self.n if self.n else math.nan

    @property
    def error(self) -> float:
        """The mean's Monte Carlo standard error.

        Of a share that is 0 or 1 in all trials it is that of one trial in which it is not.
        """
        if self.n < 2:
            return math.inf
        spread = max(self.squares / self.n - self.mean**2, 0.0)
        if not spread and self.mean in (0.0, 1.0):
            spread = 1 / self.n
        return math.sqrt(spread / (self.n - 1))


@dataclass
class Tally:
    """Of one cell.

    Attributes:
        trials: How many there were.
        sums: By figure.
    """

    trials: int = 0
    sums: dict[str, Sum] = field(default_factory=dict)

    def add(self, notes: Notes) -> None:
        """Take one trial in."""
        self.trials += 1
        for figure, value in notes.items():
            of = self.sums.setdefault(figure, Sum())
            if value is not None:
                of.n, of.total, of.squares = of.n + 1, of.total + value, of.squares + value * value

    def merge(self, other: Tally) -> None:
        """Take the trials of another in."""
        self.trials += other.trials
        for figure, theirs in other.sums.items():
            of = self.sums.setdefault(figure, Sum())
            of.n, of.total, of.squares = of.n + theirs.n, of.total + theirs.total, of.squares + theirs.squares
