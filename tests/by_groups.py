"""The delete-a-group jackknife by its definition: every row kept, and the effect computed again without each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import foldaway as fa
from clustered import adjusted
from kept_rows import covariate_columns


def by_groups(
    plan: fa.Plan, rows: pd.DataFrame, estimator: str, arm: str, outcome: str, group: str
) -> tuple[float, float]:
    """The effect and its standard error; `group` is the column of groups."""
    y = rows[list(plan.measured)].to_numpy(float)
    z = np.column_stack([np.ones(len(rows)), covariate_columns(plan, rows), y])
    place = list(plan.measured).index(outcome)
    y = y[:, place]
    p = y - adjusted(plan, z)[:, place] if estimator == "adjusted" else np.zeros(len(y))
    arms, groups = pd.Categorical(rows[plan.arm], list(plan.arms)).codes, rows[group].to_numpy()
    code = list(plan.arms).index(arm)
    without = [_effect(y, p, arms, groups, groups != g, code) for g in range(plan.groups)]
    variance = (plan.groups - 1) * np.var(without)
    return _effect(y, p, arms, groups, np.full(len(y), True), code), float(np.sqrt(variance))


def _effect(y: Any, p: Any, arms: Any, groups: Any, here: Any, arm: int) -> float:
    """The difference of means of y − λp, with λ by least squares over the sums of arms in groups."""
    y, p, arms, groups = y[here], p[here], arms[here], groups[here]
    sums = {}
    for name, column in (("y", y), ("p", p)):
        means, counts = (np.bincount(arms, weights) for weights in (column, None))
        frame = pd.DataFrame({"arm": arms, "group": groups, "away": (column - (means / counts)[arms]) / counts[arms]})
        sums[name] = frame.groupby(["arm", "group"])["away"].sum().to_numpy()
    square = float(sums["p"] @ sums["p"])
    rate = float(sums["y"] @ sums["p"]) / square if square else 0.0
    left = y - rate * p
    return float(left[arms == arm].mean() - left[arms == 0].mean())
