"""What makes ỹ of a record: its values less what the plan's coefficients predict from its covariates."""

from __future__ import annotations

import math

from foldaway_device.plan import Coefficients, Plan, columns_of
from foldaway_device.rows import Row
from foldaway_device.values import Bounds, Value, clip


def adjusted(plan: Plan, row: Row) -> list[float]:
    """ỹ of a row, by value; nothing if the plan has no coefficients."""
    if plan.coefficients is None:
        return []
    found = []
    for value, y in zip(plan.values, row.y, strict=True):
        slopes, center = plan.coefficients.slopes.get(value.name, {}), plan.coefficients.center
        columns = zip(plan.regressors[1:], row.x, strict=True)
        predicted = sum(slopes.get(name, 0.0) * (x - center.get(name, 0.0)) for name, x in columns)
        found.append(y - (clip(predicted, _reach(plan, plan.coefficients, value)) if plan.release else predicted))
    return found


def _reach(plan: Plan, coefficients: Coefficients, value: Value) -> Bounds:
    """The least and the largest prediction of a value, covariates being within their bounds; at most its range."""
    parts = [_parts_of(plan, coefficients, value, covariate) for covariate in plan.covariates]
    lower, upper = value.within(plan.bounds.get(value.column, (-math.inf, math.inf)))
    width = (lower - upper, upper - lower)
    return clip(sum(map(min, parts)), width), clip(sum(map(max, parts)), width)


def _parts_of(plan: Plan, coefficients: Coefficients, value: Value, covariate: str) -> list[float]:
    """What a covariate can add to a prediction, at its ends: at its bounds, or at each of its levels."""
    levels = plan.levels.get(covariate)
    columns = columns_of(covariate, levels)
    slopes = [coefficients.slopes.get(value.name, {}).get(name, 0.0) for name in columns]
    centers = [coefficients.center.get(name, 0.0) for name in columns]
    if levels is not None:
        none = -sum(slope * center for slope, center in zip(slopes, centers, strict=True))
        return [none, *(none + slope for slope in slopes)]
    ends = plan.bounds.get(covariate, (-math.inf, math.inf))
    return [slopes[0] * (end - centers[0]) if slopes[0] else 0.0 for end in ends]
