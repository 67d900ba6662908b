"""A quantile of a column, such as the median or the 95th percentile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from foldaway.numerics.block import LARGEST
from foldaway.plan.outcomes.binning import MOST_BINS
from foldaway.plan.outcomes.bins import Bins
from foldaway.plan.outcomes.outcome import Column, Outcome
from foldaway.plan.outcomes.value import Value, shortest
from foldaway.plan.vocabulary import SUMS_ALONE, Need

Quantiles = Annotated[
    tuple[float, ...], Meta(min_length=1, description="a list of numbers between 0 and 1, as in [0.5, 0.95]")
]
Ends = Annotated[
    tuple[float, float], Meta(description="the lowest and the highest value to distinguish, as in [1, 60000]")
]
Resolution = Annotated[float, Meta(ge=1e-5, le=0.5, description="a number from 0.00001 to 0.5, for example 0.01")]

_HERE = Need(
    lambda plan: plan.federated is None,
    "{name!r} needs a histogram, which devices and sites do not send: leave out `federated`.",
)
_EXACT = Need(
    lambda plan: plan.release is None,
    "{name!r} needs a histogram, which a `release` does not cover: leave out the quantile, or use a share.",
)


class Quantile(Outcome, frozen=True):
    """One or several quantiles of a column, such as the median and the 95th percentile of latency.

    They are read from a histogram by arm and group of units, whose bins the plan fixes. Several quantiles of one column
    share it; each is an outcome with a row of its own.

    Attributes:
        column: The column.
        quantiles: Which, each between 0 and 1.
        bounds: The lowest and the highest value that are distinguished. A quantile that lies beyond is withheld, so
            choose the bounds generously.
        resolution: How exactly a value is known. Between positive bounds it is relative to the value (0.01 if left
            out), otherwise to the distance between the bounds (0.001).

    Example:
        >>> [each.name for each in Quantile("latency_ms", (0.5, 0.95), bounds=(1, 60_000)).apart()]
        ['latency_ms p50', 'latency_ms p95']
    """

    KIND: ClassVar[str] = "quantile"
    LEVEL: ClassVar[str] = "quantile"
    READ_BY: ClassVar[tuple[str, ...]] = ("difference",)
    NEEDS: ClassVar[tuple[Need, ...]] = (SUMS_ALONE, _HERE, _EXACT)

    column: Column
    quantiles: Quantiles
    bounds: Ends
    resolution: Resolution | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        """The column within the bounds, by whose sums records are counted; of these the histogram tells as much."""
        return (Value(self.column, self.bounds),)

    @property
    def binning(self) -> Bins:
        """That of its histogram."""
        lower, upper = self.bounds
        return Bins(self.column, lower, upper, self.resolution or (0.01 if lower > 0 else 0.001))

    @property
    def default_name(self) -> str:
        """The column and the percentiles."""
        return f"{self.column} {_percentiles(self.quantiles)}"

    def apart(self) -> tuple[Quantile, ...]:
        """One outcome for each quantile."""
        if len(self.quantiles) == 1:
            return (self,)
        named = "" if self.name == self.default_name else self.name
        return tuple(
            msgspec.structs.replace(
                self,
                quantiles=(p,),
                name=f"{named} {_percentiles([p])}" if named else "",
                label=f"{self.label} {_percentiles([p])}" if self.label else "",
            )
            for p in self.quantiles
        )

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        if not all(0 < p < 1 for p in self.quantiles):
            yield f"the quantiles of {self.column!r} must lie between 0 and 1: the median is 0.5."
        elif len(set(self.quantiles)) < len(self.quantiles):
            yield f"the quantiles of {self.column!r} contain one of them twice."
        elif not -LARGEST <= self.bounds[0] < self.bounds[1] <= LARGEST:
            yield f"the bounds of {self.column!r} must be two numbers, the lower one first."
        elif self.binning.number > MOST_BINS:
            yield (
                f"the histogram of {self.column!r} would have {self.binning.number:,} bins, more than {MOST_BINS:,}: "
                "choose narrower `bounds` or a coarser `resolution`."
            )
        else:
            yield from super().faults()


def _percentiles(quantiles: tuple[float, ...] | list[float]) -> str:
    return ", ".join(f"p{shortest(round(100 * p, 10))}" for p in quantiles)
