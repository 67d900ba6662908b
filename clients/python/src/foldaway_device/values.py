"""The values that outcomes are computed from: one number of a record each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from foldaway_device.errors import PlanError

Bounds = tuple[float, float]

_TESTS: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
    ("above", ">", operator.gt),
    ("below", "<", operator.lt),
    ("equals", "=", operator.eq),
)


class Value(NamedTuple):
    """A number of a record.

    Attributes:
        name: Its name, by which the plan's coefficients know it.
        column: The column that it is computed from.
        of: How it is computed.
        within: Between which numbers it lies, given the bounds of its column.
    """

    name: str
    column: str
    of: Callable[[float], float]
    within: Callable[[Bounds], Bounds]


def values_of(outcome: Any) -> list[Value]:
    """The values of an outcome: of a column's name, or of a table."""
    if isinstance(outcome, str):
        return [_plain(outcome)]
    match outcome.get("kind", "mean"):
        case "mean":
            cap = outcome.get("cap")
            return [_capped(outcome["column"], (cap[0], cap[1])) if cap else _plain(outcome["column"])]
        case "total":
            return [_plain(outcome["column"])]
        case "ratio":
            return [_plain(outcome["numerator"]), _plain(outcome["denominator"])]
        case "share":
            return [_share(outcome["column"], outcome)]
        case kind:
            raise PlanError(f"this device does not know outcomes of the kind {kind!r}: use a newer foldaway-device.")


def clip(number: float, bounds: Bounds) -> float:
    """The nearest number within bounds."""
    return min(max(number, bounds[0]), bounds[1])


def _plain(column: str) -> Value:
    return Value(column, column, lambda number: number, lambda bounds: bounds)


def _capped(column: str, cap: Bounds) -> Value:
    name = f"{column} within [{shortest(cap[0])}, {shortest(cap[1])}]"
    return Value(
        name, column, lambda number: clip(number, cap), lambda bounds: (clip(bounds[0], cap), clip(bounds[1], cap))
    )


def _share(column: str, outcome: Mapping[str, Any]) -> Value:
    test, sign, passes = next(each for each in _TESTS if outcome.get(each[0]) is not None)
    threshold = float(outcome[test])
    name = f"{column} {sign} {shortest(threshold)}"
    return Value(name, column, lambda number: float(passes(number, threshold)), lambda bounds: (0.0, 1.0))


def shortest(number: float) -> str:
    """A number as names have it: with 15 digits, or if these read back as another one, with the fewest that do.

    Example:
        >>> [shortest(number) for number in (2, 0.1 + 0.2, 1e21)]
        ['2', '0.30000000000000004', '1e+21']
    """
    text = f"{number:.15g}"
    return text if float(text) == number else repr(number)
