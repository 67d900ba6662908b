"""The ratio of two columns' sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from foldaway.plan.outcomes.outcome import Column, Outcome
from foldaway.plan.outcomes.value import Value
from foldaway.plan.vocabulary import SUMS_ALONE, Need


class Ratio(Outcome, frozen=True):
    """Σ numerator / Σ denominator of an arm, such as clicks per view: not the mean of the records' own ratios.

    Attributes:
        numerator: The column above the line.
        denominator: The column below it.

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
