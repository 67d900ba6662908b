"""The share of records that pass a test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, get_args

from msgspec import Meta

from foldaway.plan.outcomes.bounded import Bounded
from foldaway.plan.outcomes.outcome import Column
from foldaway.plan.outcomes.value import Test, Value

Threshold = Annotated[float, Meta(description="a number")]


class Share(Bounded, frozen=True):
    """The share of records whose column is above a number, below it, or equal to it. It names one of the three.

    Its relative effect is the risk ratio less 1, and its rows have an odds ratio as well.

    Attributes:
        column: The column.
        above: The record counts if the column is larger than this.
        below: … smaller than this.
        equals: … equal to this.

    Example:
        >>> Share("latency_ms", above=1000).name
        'latency_ms > 1000'
    """

    KIND: ClassVar[str] = "share"
    LEVEL: ClassVar[str] = "share"

    column: Column
    above: Threshold | None = None
    below: Threshold | None = None
    equals: Threshold | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        """1 where the record counts, 0 where it does not."""
        ((test, threshold),) = self._tests().items()
        return (Value(self.column, test=test, threshold=threshold),)

    @property
    def margin_text(self) -> str:
        """The margin as people read it; empty without one."""
        return f"{100 * self.margin:,g} percentage points" if isinstance(self.margin, float) else super().margin_text

    def _tests(self) -> dict[Test, float]:
        return {test: number for test in get_args(Test) if (number := getattr(self, test)) is not None}

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        if len(self._tests()) != 1:
            yield f"the share of {self.column!r} needs one of `above`, `below` and `equals`."
        elif not all(map(math.isfinite, self._tests().values())):
            yield f"the share of {self.column!r} must be tested against a finite number."
        else:
            yield from super().faults()
            if isinstance(self.margin, float) and self.margin >= 1:
                yield f"the margin of {self.default_name!r} must be below 1: shares differ by no more than that."
