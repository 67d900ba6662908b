"""The part of a plan for the bootstrap."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from foldaway.plan.part import Part

# Each replicate keeps its own sums for every arm.
MOST_REPLICATES = 100_000

Weights = Literal["poisson", "double-or-nothing"]
Replicates = Annotated[int, Meta(ge=2, le=MOST_REPLICATES, description=f"a whole number from 2 to {MOST_REPLICATES:,}")]


class Bootstrap(Part, frozen=True):
    """The bootstrap, by unit if the plan has one and by record if not. In short: the number of replicates alone.

    Attributes:
        replicates: The number of replicates.
        weights: The weights that a unit gets in each replicate: ``"poisson"`` for Poisson(1), or
            ``"double-or-nothing"`` for 0 or 2 with equal probability (Owen and Eckles 2012), several times as fast.

    Example:
        >>> Bootstrap(1000).weights
        'poisson'
    """

    TABLE: ClassVar[str] = "bootstrap"
    SHORT: ClassVar[str] = "replicates"

    replicates: Replicates
    weights: Weights = "poisson"
