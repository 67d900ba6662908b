"""Numbers of devices as whole numbers modulo 2^64: at which scale, so that no sum of all devices can overflow.

In mode shares a device sends its number of records n, Σy of each value and, with coefficients, Σỹ of each. The sum of a
column over all devices is at most its largest absolute value × `device_records` × `expected_units`. A column's scale is
the largest power of two that keeps this below 2^62, so that twice as many devices as were expected still fit.
"""

from __future__ import annotations

import math
from typing import Any

# Whole numbers that a sum stays below; and steps that a value's bounds are at least apart.
_ROOM, _LEAST = 62, 2.0**20


def bits_of(plan: Any) -> list[int]:
    """For each value y, then for each ỹ, how many binary places a device sends of its sum; less than none where large.

    Example:
        >>> from foldaway import Plan, Mean
        >>> plan = Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=[Mean("y", bounds=[0, 100])],
        ...     expected_units=100_000, federated={"mode": "sums", "device_records": 50})
        >>> bits_of(plan)
        [33]
    """
    assert plan.federated is not None
    records = float(plan.federated.device_records) * float(plan.expected_units)
    # frexp(x) is m, e with x = m 2^e and m < 1.
    return [_ROOM - math.frexp(most * records)[1] for most in _largest(plan)]


def fits(plan: Any) -> bool:
    """Whether numbers are fine enough all the same: a value's bounds are a million steps apart."""
    if plan.federated is None or len(plan.value_bounds) != len(plan.values):
        return True
    widths = [upper - lower for lower, upper in plan.value_bounds]
    ratio = len(_largest(plan)) // max(len(widths), 1)
    return all(width * 2.0**bits >= _LEAST for width, bits in zip(widths * ratio, bits_of(plan), strict=True))


def _largest(plan: Any) -> list[float]:
    """The largest absolute number that a record can add to each sum."""
    y = [max(abs(lower), abs(upper)) for lower, upper in plan.value_bounds]
    tables = plan.coefficients
    if tables is None:
        return y
    tilde = []
    for value, most in zip(plan.values, y, strict=True):
        for name in plan.predictors[1:]:
            lower, upper = plan.bounds.get(name, (0.0, 1.0))  # of a level
            slope, center = tables.slopes.get(value.name, {}).get(name, 0.0), tables.center.get(name, 0.0)
            most += max(abs(slope * (lower - center)), abs(slope * (upper - center)))
        tilde.append(most)
    return y + tilde
