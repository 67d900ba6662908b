"""The bounds of a column, and what happens to values beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from foldaway.numerics.block import LARGEST

Ends = Annotated[tuple[float, float], Meta(description="the lowest and the highest value, as in [0, 500]")]
Beyond = Literal["clip", "refuse"]


class ColumnLimits(NamedTuple):
    """The lowest and the highest value of a column, and whether others are clipped to them or refused.

    Example:
        >>> list(ColumnLimits((1.0, 0.0), "clip").faults("age"))
        ["the bounds of 'age' must be two numbers, the lower one first."]
    """

    bounds: tuple[float, float]
    beyond: Beyond = "clip"

    def faults(self, column: str) -> Iterator[str]:
        """What is wrong with them."""
        if not -LARGEST <= self.bounds[0] < self.bounds[1] <= LARGEST:
            yield f"the bounds of {column!r} must be two numbers, the lower one first."
