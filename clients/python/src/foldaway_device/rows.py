"""A record as a row [1, x, y] of numbers, if there is nothing wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foldaway_device.errors import RecordError
from foldaway_device.floats import LARGEST
from foldaway_device.plan import Plan
from foldaway_device.values import clip


class Row(NamedTuple):
    """The covariates' columns, the values, and the weight."""

    x: list[float]
    y: list[float]
    weight: float


class _Broken(Exception):
    """A rule that a value breaks."""


def row_of(plan: Plan, record: Mapping[str, Any], arm: str) -> Row:
    """The row of a record.

    Raises:
        RecordError: The record is faulty; the message does not repeat it.
    """
    if not isinstance(record, Mapping):
        raise RecordError("the record was not taken: give one record at a time, as a mapping from columns to values.")
    given = record.get(plan.arm)
    if given is not None and _level_of(given) not in plan.arm_values[arm]:
        raise RecordError(f"the record was not taken: its column {plan.arm!r} is not the arm of this device.")
    faults: dict[str, str] = {}

    def numbers(column: str, levels: Sequence[str] | None = None) -> list[float]:
        try:
            if levels is not None:
                code = _code_in(record.get(column), levels)
                return [float(code == place) for place in range(1, len(levels))]
            number = _number_in(record.get(column))
            return [_positive(number) if column == plan.weight else _bounded(plan, column, number)]
        except _Broken as broken:
            faults.setdefault(column, str(broken))
            return [0.0]

    x = [number for column in plan.covariates for number in numbers(column, plan.levels.get(column))]
    y = [value.of(numbers(value.column)[0]) for value in plan.values]
    weight = 1.0 if plan.weight is None else numbers(plan.weight)[0]
    if faults:
        said = "; ".join(f"{column} ({rule})" for column, rule in faults.items())
        raise RecordError(f"the record was not taken: faulty in {said}. Correct it, and record it again.", faults)
    return Row(x, y, weight)


def _number_in(value: Any) -> float:
    if value is None:
        raise _Broken("null")
    if not hasattr(value, "__float__"):
        raise _Broken("wrong type")
    try:
        number = float(value)
    except OverflowError:  # a whole number with hundreds of digits
        raise _Broken("too large (over 1e40)") from None
    except (TypeError, ValueError):
        raise _Broken("wrong type") from None
    if math.isnan(number):
        raise _Broken("NaN")
    if math.isinf(number):
        raise _Broken("infinity")
    if abs(number) > LARGEST:
        raise _Broken("too large (over 1e40)")
    return number


def _bounded(plan: Plan, column: str, number: float) -> float:
    if column not in plan.bounds:
        return number
    within = clip(number, plan.bounds[column])
    if within != number and column in plan.refused:
        raise _Broken("out of bounds")
    return within


def _positive(number: float) -> float:
    if number <= 1 / LARGEST:
        raise _Broken("not positive (over 1e-40)")
    return number


def _code_in(value: Any, levels: Sequence[str]) -> int:
    if value is None:
        raise _Broken("null")
    level = _level_of(value)
    if level is None:
        raise _Broken("wrong type")
    if level not in levels:
        raise _Broken("unknown level")
    return levels.index(level)


def _level_of(value: Any) -> str | None:
    """A value as the name of a level: text, a boolean, or a whole number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return str(int(value))
    return str(value) if isinstance(value, str | int) else None
