"""What a design is: how one of its trials comes about, what is noted of it, and which laws the notes have to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

Notes: TypeAlias = Mapping[str, float | bool | None]
"""What is noted of one trial of a cell, by figure; None where the trial has nothing to say of it."""

Found: TypeAlias = Mapping[str, Notes]
"""The notes of one trial by cell: a design with several outcomes has a cell for each."""

Holds = Literal["yes", "unclear", "no", "not told"]

_CHANCE = 1.96  # Monte Carlo standard errors by which a figure has to be beyond its limit to have broken the law


class Law(NamedTuple):
    """How large, or how small, the mean of a figure over all trials may be.

    Attributes:
        figure: Its name.
        limit: The most that it may be, or the least.
        least: Whether it is the least.
        share: Whether the figure is a share of trials.
        never: Whether no trial at all may be beyond it.
    """

    figure: str
    limit: float
    least: bool = False
    share: bool = True
    never: bool = False

    def holds(self, mean: float, error: float) -> Holds:
        """Whether a mean keeps it; unclear if it does not, but by no more than chance. NaN: no trial has the figure.

        Example:
            >>> WRONG.holds(0.05, 0.005), WRONG.holds(0.07, 0.01), WRONG.holds(0.09, 0.01)
            ('yes', 'unclear', 'no')
        """
        beyond = (self.limit - mean) if self.least else (mean - self.limit)
        if math.isnan(mean):
            return "not told"
        if beyond <= 0:
            return "yes"
        return "unclear" if beyond <= _CHANCE * error and not self.never else "no"


WRONG = Law("wrong", 0.065)
EVER = Law("ever wrong", 0.05)
COVERS = Law("covers", 0.935, least=True)
RELATIVE = Law("relative covers", 0.935, least=True)
GRID = 0.052
"""What the figure `wrong` may be on average over all cells."""


@dataclass(frozen=True)
class Design:
    """A way in which trials come about.

    Attributes:
        topic: What it belongs to.
        name: What it is called within that.
        trial: Simulates a trial, folds it, reads it, and notes what is to be noted.
        laws: What the means of the figures have to keep.
        part: How many of the trials that are asked for it has: those that are looked at often cost more.
    """

    topic: str
    name: str
    trial: Callable[[np.random.Generator], Found]
    laws: tuple[Law, ...] = (WRONG,)
    part: float = 1.0

    @property
    def title(self) -> str:
        """What it is called among all."""
        return f"{self.topic}: {self.name}"

    def trials(self, asked: int) -> int:
        """How many it has where so many are asked for."""
        return max(1, round(self.part * asked))
