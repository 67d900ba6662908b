"""The total of a column, per assigned unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from foldaway.plan.outcomes.bounded import Bounded
from foldaway.plan.outcomes.outcome import Column
from foldaway.plan.outcomes.value import Value
from foldaway.plan.part import Count
from foldaway.plan.vocabulary import SUMS_ALONE, TOTAL, Need

_COUNTED = Need(lambda plan: plan.weight is None, "{name!r} is a sum over unweighted records: leave out `weight`.")


class Total(Bounded, frozen=True):
    """The total of a column per assigned unit: Σv of an arm over the arm's probability.

    It needs no denominator. So it is the right question where the treatment changes how many records a unit has, such
    as revenue over all visits: a mean per record would then compare unlike records. It is noisier than a mean.

    Attributes:
        column: The column.
        assigned_units: How many units were assigned to the arms, if known: the total is then per unit, otherwise what
            all units together would have had in the arm.

    Example:
        >>> Total("revenue").name
        'total revenue'
    """

    KIND: ClassVar[str] = "total"
    LEVEL: ClassVar[str] = "total"
    READ_BY: ClassVar[tuple[str, ...]] = (TOTAL,)
    NEEDS: ClassVar[tuple[Need, ...]] = (SUMS_ALONE, _COUNTED)

    column: Column
    assigned_units: Count | None = None

    @property
    def values(self) -> tuple[Value, ...]:
        """The column."""
        return (Value(self.column),)

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        yield from super().faults()
        if self.missing == "allowed":
            yield f"a total of {self.column!r} needs every record's value: a missing one would count as 0."

    @property
    def default_name(self) -> str:
        """That it is a total."""
        return f"total {self.column}"
