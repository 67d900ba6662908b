"""The mean of a column: the outcome that a bare column name stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from foldaway.numerics.block import LARGEST
from foldaway.plan.outcomes.bounded import Bounded
from foldaway.plan.outcomes.outcome import Column
from foldaway.plan.outcomes.value import Value

Cap = Annotated[tuple[float, float], Meta(description="the lowest and the highest number, as in [0, 500]")]


class Mean(Bounded, frozen=True):
    """The mean of a column per record. A bare column name is short for it.

    Attributes:
        column: The column.
        cap: Values beyond these two numbers count as them (a winsorised mean). Unlike `bounds`, a cap is of this
            outcome alone, and nothing is counted.

    Example:
        >>> Mean("revenue", cap=(0, 500)).name
        'revenue within [0, 500]'
    """

    KIND: ClassVar[str] = "mean"

    column: Column
    cap: Cap | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        """The column, capped."""
        return (Value(self.column, self.cap),)

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        yield from super().faults()
        if self.cap is not None and not -LARGEST <= self.cap[0] < self.cap[1] <= LARGEST:
            yield f"the cap of {self.column!r} must be two numbers, the lower one first."
