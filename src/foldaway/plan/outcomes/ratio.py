"""The ratio of two columns' sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from foldaway.plan.limits import Beyond, ColumnLimits
from foldaway.plan.outcomes.outcome import Column, Outcome
from foldaway.plan.outcomes.value import Value
from foldaway.plan.part import Fixed
from foldaway.plan.vocabulary import SUMS_ALONE, Need

Bounds = Annotated[
    Mapping[str, tuple[float, float]],
    Meta(description="a table with the lowest and the highest value of a column, as in {clicks = [0, 10]}"),
]


class Ratio(Outcome, frozen=True):
    """Σ numerator / Σ denominator of an arm, such as clicks per view: not the mean of the records' own ratios.

    Attributes:
        numerator: The column above the line.
        denominator: The column below it.
        bounds: By column, its lowest and its highest value.
        beyond: What happens to values beyond them: ``"clip"`` them, counted by arm, or ``"refuse"`` them as faulty.

    Example:
        >>> Ratio("clicks", "views").name
        'clicks / views'
    """

    KIND: ClassVar[str] = "ratio"
    LEVEL: ClassVar[str] = "ratio"
    READ_BY: ClassVar[tuple[str, ...]] = ("difference", "adjusted")
    NEEDS: ClassVar[tuple[Need, ...]] = (SUMS_ALONE,)

    numerator: Column
    denominator: Column
    bounds: Bounds = Fixed()
    beyond: Beyond = "clip"

    @property
    def limits(self) -> Mapping[str, ColumnLimits]:
        """Those of its columns that have bounds."""
        return {column: ColumnLimits(bounds, self.beyond) for column, bounds in self.bounds.items()}

    @property
    def values(self) -> tuple[Value, ...]:
        """Both columns; a record that may lack one of them has either both values or none."""
        if self.missing == "refused":
            return Value(self.numerator), Value(self.denominator)
        above, below = self.numerator, self.denominator
        return Value(above, beside=(below,)), Value(below, beside=(above,))

    @property
    def default_name(self) -> str:
        """The quotient."""
        return f"{self.numerator} / {self.denominator}"

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        yield from super().faults()
        if self.numerator == self.denominator:
            yield f"the ratio of {self.numerator!r} to itself is always 1: name two columns."
        if others := [column for column in self.bounds if column not in (self.numerator, self.denominator)]:
            yield f"the bounds of {self.default_name!r} name {others[0]!r}, which is neither of its columns."
        if self.beyond != "clip" and not self.bounds:
            yield f"`beyond` of {self.default_name!r} needs `bounds`."
