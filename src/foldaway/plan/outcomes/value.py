"""A value: one number of a record, which tallies sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from foldaway.numerics.block import Floats

Bounds = tuple[float, float]
Test = Literal["above", "below", "equals"]

_SIGNS = {"above": ">", "below": "<", "equals": "="}


class Value(NamedTuple):
    """A column as it came, capped, or as 1 where it passes a test and 0 where it does not.

    Outcomes that are computed from equal values share them.

    Attributes:
        column: The column.
        cap: The lowest and the highest number that is left of it.
        test: What makes it 1.
        threshold: The number that it is tested against.
        beside: Further columns without which a record does not have the value.

    Example:
        >>> slow = Value("latency_ms", test="above", threshold=1000)
        >>> slow.name, slow.of(np.array([200.0, 1300.0, np.nan]))
        ('latency_ms > 1000', array([ 0.,  1., nan]))
    """

    column: str
    cap: Bounds | None = None
    test: Test | None = None
    threshold: float = 0.0
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What tables call it: the column, and what is made of it."""
        name = self.column
        if self.cap is not None:
            name += f" within [{shortest(self.cap[0])}, {shortest(self.cap[1])}]"
        if self.test is not None:
            name += f" {_SIGNS[self.test]} {shortest(self.threshold)}"
        return f"{name} beside {', '.join(self.beside)}" if self.beside else name

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns without which a record does not have the value."""
        return self.column, *self.beside

    def of(self, column: Floats) -> Floats:
        """The value of records, from their column; NaN where that is."""
        if self.cap is not None:
            column = np.clip(column, *self.cap)
        if self.test is None:
            return column
        compare = {"above": np.greater, "below": np.less, "equals": np.equal}[self.test]
        passed: Floats = compare(column, self.threshold).astype(np.float64)
        missing = np.isnan(column)
        return np.where(missing, np.nan, passed) if missing.any() else passed

    def bounds(self, of_columns: Mapping[str, Bounds]) -> Bounds | None:
        """Between which numbers it lies, given the bounds of columns; None if it has no bounds.

        Example:
            >>> Value("revenue", cap=(0, 500)).bounds({"revenue": (-10, 100)})
            (0, 100)
        """
        if self.test is not None:
            return 0.0, 1.0
        given = of_columns.get(self.column)
        if given is None or self.cap is None:
            return self.cap if given is None else given
        lower, upper = (min(max(end, self.cap[0]), self.cap[1]) for end in given)
        return lower, upper


def shortest(number: float) -> str:
    """A number in as few digits as tell it.

    Example:
        >>> shortest(1000.0), shortest(0.1), shortest(1e9)
        ('1000', '0.1', '1000000000')
    """
    return f"{number:.15g}" if float(f"{number:.15g}") == number else repr(number)
