"""Records for any plan: drawn by its own settings, the same in every run and on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import foldaway as fa
from foldaway.plan import Mean, Outcome, Quantile, Ratio, Share, Survival

# Levels of columns whose levels no plan lists: common ones, and one that few records have.
UNLISTED = ["north", "south", "east", "far"]


def rows_for(plan: fa.Plan, n: int) -> pd.DataFrame:
    """Records of two thirds as many units, in whole hundredths: no machine draws other ones."""
    rng = np.random.default_rng(23)
    several = (plan.unit or plan.cluster or plan.federated) and plan.records_per_unit != "one"
    units = max(1, n // 3) if several else n
    unit = np.sort(rng.integers(0, units, n)) if several else np.arange(n)
    place = rng.uniform(size=units)[unit]  # of a unit: decides its stratum
    common = rng.normal(size=units)[unit]
    chance = rng.uniform(size=n)
    arm = _arms(plan, place, chance if plan.cluster is not None else chance[unit])  # clusters have units of both arms
    rows = pd.DataFrame({plan.arm: np.array([values[-1] for values in plan.arms.said.values()])[arm]})
    rows[plan.unit or "unit"] = [f"unit-{u}" for u in unit]
    if plan.cluster is not None:
        rows[plan.cluster] = [f"cluster-{u // 3}" for u in unit]
    if plan.strata is not None:
        rows[plan.strata.column] = _strata(plan, place)
    if plan.weight is not None:
        rows[plan.weight] = np.round(rng.uniform(0.2, 3, n), 2)
    if plan.received is not None:
        rows[plan.received] = (rng.uniform(size=n) < 0.1 + 0.6 * (arm > 0)).astype(float)
    explained = np.zeros(n)
    for column in (*plan.covariates, *plan.segments):
        if column in rows:
            continue
        levels = plan.levels.get(column, UNLISTED if column in plan.segments else ())
        if levels:
            code = np.minimum(rng.geometric(0.5, n) - 1, len(levels) - 1)
            rows[column] = np.array(levels)[code]
            explained += 0.4 * code
        else:
            x = rng.normal(size=n) + 0.5 * common
            rows[column] = np.round(10 + 3 * x, 2)
            explained += 0.7 * x
    for outcome in plan.outcomes:
        for column in outcome.columns:
            noise = common + rng.normal(size=n) * (1 + 0.5 * (arm > 0))
            rows[column] = np.round(_values(plan, outcome, column, explained + 0.4 * arm + noise), 2)
            if outcome.missing == "allowed":
                rows.loc[rng.uniform(size=n) < 0.06 + 0.03 * (arm > 0), column] = None
    if plan.drops:
        rows.loc[rng.integers(0, n, n // 60), plan.outcomes[0].columns[0]] = None
    return rows


def _arms(plan: fa.Plan, place: Any, chance: Any) -> Any:
    if plan.strata is None:
        return np.searchsorted(np.cumsum(list(plan.arms.values()))[:-1], chance, side="right")
    codes = np.zeros(len(place), int)
    for name, shares in plan.strata.probabilities.items():
        here = _strata(plan, place) == name
        codes[here] = np.searchsorted(np.cumsum([shares[arm] for arm in plan.arms])[:-1], chance[here], side="right")
    return codes


def _strata(plan: fa.Plan, place: Any) -> Any:
    assert plan.strata is not None
    names = np.array(list(plan.strata.probabilities))
    return names[(place * len(names)).astype(int)]


def _values(plan: fa.Plan, outcome: Outcome, column: str, signal: Any) -> Any:
    """Values of the outcome's kind, of which some lie beyond what bounds and caps allow."""
    match outcome:
        case Share(equals=float(level)):
            return np.where(signal > 0.6, level, level - 1)
        case Share():
            return signal + next(number for number in (outcome.above, outcome.below) if number is not None)
        case Ratio():
            return np.floor(np.abs(signal) * (2 if column == outcome.numerator else 5)) + (column != outcome.numerator)
        case Quantile():
            lower, upper = outcome.bounds
            return lower + (upper - lower) * (0.4 + 0.08 * signal)
        case Survival() if column == outcome.event:
            return (np.floor(50 * np.abs(signal)) % 3 > 0).astype(float)
        case Survival():
            return np.ceil(outcome.until * 0.4 * np.abs(signal))
        case Mean(cap=(lower, upper)):
            return lower + (upper - lower) * (0.5 + 0.2 * signal)
    if column in plan.bounds:
        lower, upper = plan.bounds[column]
        return lower + (upper - lower) * (0.5 + 0.12 * signal)
    return 20 + 5 * signal
