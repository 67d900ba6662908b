"""What differs between a golden and what is read now; a sentence for each field, with its row, the old and the new.

Words, counts and flags are equal, and so is every number of a rounded reading, but for the joint tests, which are
computed from rounded numbers. Those, and every number of an exact reading, may differ by 1e-13 of their scale, since
the order in which a machine's linear algebra adds numbers moves their last digits:

- what is measured in the outcome's unit, such as the estimate and the ends of intervals: the larger of the number and
  its standard error, for an estimate near zero is a difference of larger numbers;
- a statistic: itself, or 1 if that is more, for the same reason;
- a p-value: itself times 1 + z², z being the row's statistic, since that is how steeply the tails of a normal
  distribution fall;
- all else: the number itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DIGITS = 1e-13

# What is measured in the outcome's unit, by how its name ends.
_IN_UNITS = ("estimate", "ci_lower", "ci_upper", "control_level")
_NAMING = ("outcome", "arm", "estimator", "se_kind", "segment", "column", "rule")


def differences(old: Any, new: Any, *, rounded: bool) -> Iterator[str]:
    """A sentence for each field that differs by more than it may."""
    rows = {_name(row): row for row in old.get("effects", [])}
    yield from _between(old, new, "", {}, rows, 0.0 if rounded else DIGITS)


def _between(
    old: Any, new: Any, where: str, row: Mapping[str, Any], rows: Mapping[str, Any], digits: float
) -> Iterator[str]:
    """The same of a part of the reading, and the row that it belongs to."""
    name = where.rpartition(" ")[2]
    if isinstance(old, dict) and isinstance(new, dict):
        row = old if "std_error" in old else rows.get(_name(old), row)  # a verdict is of a row
        digits = DIGITS if name == "joint" else digits
        for field in (*old, *(field for field in new if field not in old)):
            yield from _between(old.get(field), new.get(field), f"{where} {field}".strip(), row, rows, digits)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _between(before, after, f"{where} [{_name(before) or place}]", row, rows, digits)
    elif isinstance(old, float) and isinstance(new, float):
        if abs(new - old) > digits * scale(name, old, row):
            yield f"{where}: was {old!r}, is {new!r}"
    elif type(old) is not type(new) or old != new:
        yield f"{where}: was {_told(old)}, is {_told(new)}"


def scale(name: str, number: float, row: Mapping[str, float]) -> float:
    """What a number's differences are measured by.

    Example:
        >>> scale("estimate", 0.25, {"std_error": 2.0}), scale("p_value", 0.5, {"statistic": 3.0})
        (2.0, 5.0)
    """
    if name == "statistic":
        return max(abs(number), 1.0)
    if "_p_" in f"_{name}":
        return abs(number) * (1 + row.get("statistic", 0.0) ** 2)
    if name.startswith("relative"):
        return max(abs(number), row.get("relative_std_error", 0.0))
    return max(abs(number), row.get("std_error", 0.0) if name.endswith(_IN_UNITS) else 0.0)


def _name(value: Any) -> str:
    names = [str(value[name]) for name in _NAMING if name in value] if isinstance(value, dict) else []
    return ", ".join(names)


def _told(value: Any) -> str:
    return "absent" if value is None else f"{len(value)} in all" if isinstance(value, list) else repr(value)
