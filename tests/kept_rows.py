"""The other analysis: statsmodels on all rows, kept. Nothing here touches foldaway's mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm

import foldaway as fa


def covariate_columns(plan: fa.Plan, rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Numeric covariates as they are, levels as dummies but for the first."""
    columns: list[Any] = []
    for name in plan.covariates:
        if name in plan.levels:
            columns += [(rows[name] == level).to_numpy(float) for level in plan.levels[name][1:]]
        else:
            columns.append(rows[name].to_numpy(float))
    return np.column_stack(columns) if columns else np.empty((len(rows), 0))


def design(plan: fa.Plan, rows: pd.DataFrame, estimator: str, arm: str, outcome: str) -> tuple[Any, Any, int]:
    """Response, regressors and the position of the effect's coefficient."""
    others = list(plan.arms)[1:]
    dummies = np.column_stack([(rows[plan.arm] == a).to_numpy(float) for a in others])
    ones = np.ones((len(rows), 1))
    y = rows[outcome].to_numpy(float)
    position = 1 + others.index(arm)
    if estimator == "horvitz_thompson":
        is_arm, is_control = (
            (rows[plan.arm] == arm).to_numpy(float),
            (rows[plan.arm] == plan.control).to_numpy(float),
        )
        return is_arm * y / plan.arms[arm] - is_control * y / plan.arms[plan.control], ones, 0
    if np.abs(y).min() > 0.6 * np.abs(y).max():
        # These estimators do not depend on the level, but statsmodels loses digits to it; this shift is exact.
        y = y - y[0]
    if estimator in ("difference", "ipw"):
        return y, np.column_stack([ones, dummies]), position
    x = covariate_columns(plan, rows)
    if estimator == "regression":
        return y, np.column_stack([ones, dummies, x]), position
    w = rows[plan.weight].to_numpy(float) if plan.weight else None
    centred = x - np.average(x, axis=0, weights=w)
    products = [dummies[:, [a]] * centred for a in range(len(others))]
    return y, np.column_stack([ones, dummies, centred, *products]), position


def weights_of(plan: fa.Plan, rows: pd.DataFrame, estimator: str) -> Any:
    """Those of the records, and for ipw one over the probability of their arm."""
    w = rows[plan.weight].to_numpy(float) if plan.weight else np.ones(len(rows))
    return w / rows[plan.arm].map(dict(plan.arms)).to_numpy(float) if estimator == "ipw" else w


def fitted(
    plan: fa.Plan, rows: pd.DataFrame, estimator: str, arm: str, outcome: str, kind: str
) -> tuple[float, float, Any]:
    """Estimate and standard error by statsmodels, and the fit."""
    if kind == "CR1" and estimator in ("difference", "ipw"):
        estimate, _, fit = fitted(plan, rows, estimator, arm, outcome, "CR0")
        return estimate, cr1_of_means(plan, rows, arm, outcome), fit
    y, X, position = design(plan, rows, estimator, arm, outcome)
    model = sm.WLS(y, X, weights=weights_of(plan, rows, estimator))
    if kind == "classical":
        fit = model.fit(method="qr")
    elif kind.startswith("HC"):
        fit = model.fit(method="qr", cov_type=kind)
    else:
        groups = pd.factorize(rows[plan.unit])[0]
        keywords = {"groups": groups, "use_correction": kind == "CR1"}
        fit = model.fit(method="qr", cov_type="cluster", cov_kwds=keywords)
    return float(fit.params[position]), float(fit.bse[position]), fit


def cr1_of_means(plan: fa.Plan, rows: pd.DataFrame, arm: str, outcome: str) -> float:
    """That of a difference, each arm's mean being a regression of its own with CR1 by statsmodels."""
    variance = 0.0
    for name in (arm, plan.control):
        mine = rows[rows[plan.arm] == name]
        y = mine[outcome].to_numpy(float)
        model = sm.WLS(y - y[0], np.ones(len(y)), weights=mine[plan.weight].to_numpy(float) if plan.weight else 1.0)
        keywords = {"groups": pd.factorize(mine[plan.unit])[0], "use_correction": True}
        variance += float(model.fit(method="qr", cov_type="cluster", cov_kwds=keywords).bse[0]) ** 2
    return float(np.sqrt(variance))


def unit_degrees(plan: fa.Plan, rows: pd.DataFrame, estimator: str, arm: str, outcome: str) -> float:
    """Degrees of freedom of an effect's error by unit: Welch's by effective units, at most those of equal spread."""
    y, X, position = design(plan, rows, estimator, arm, outcome)
    w = weights_of(plan, rows, estimator)
    influence = w * (X @ np.linalg.pinv(X.T @ (w[:, None] * X))[:, position])
    e = y - X @ np.linalg.lstsq(X * np.sqrt(w)[:, None], y * np.sqrt(w), rcond=None)[0]
    found, alike, units = [], [], []
    for name in plan.arms:
        mine = (rows[plan.arm] == name).to_numpy()
        unit = pd.factorize(rows[plan.unit][mine])[0]
        n, s, u = (np.bincount(unit, each[mine]) for each in (w, influence, influence * e))
        found.append(u @ u)
        alike.append(s @ s)
        units.append(n.sum() ** 2 / (n @ n))
    parts, free = np.array([found, alike]), np.array(units) - 1
    return float((parts.sum(axis=1) ** 2 / (parts**2 / free).sum(axis=1)).min())


def mean_variance(plan: fa.Plan, rows: pd.DataFrame, arm: str, outcome: str) -> float:
    """What the interacted estimator's variance gains since the covariates' mean is that of a sample of units.

    δ'Var(x̄)δ, with δ the difference of the arms' slopes (Negi and Wooldridge 2021).
    """
    x, y = covariate_columns(plan, rows), rows[outcome].to_numpy(float)
    w = rows[plan.weight].to_numpy(float) if plan.weight else np.ones(len(rows))
    slopes = []
    for name in (plan.control, arm):
        mine = (rows[plan.arm] == name).to_numpy()
        root = np.sqrt(w[mine])[:, None]
        X = np.column_stack([np.ones(mine.sum()), x[mine]])
        slopes.append(np.linalg.lstsq(X * root, y[mine] * root[:, 0], rcond=None)[0][1:])
    along = (x - np.average(x, axis=0, weights=w)) @ (slopes[1] - slopes[0])
    by_unit = np.bincount(pd.factorize(rows[plan.unit])[0], w * along)
    return float(by_unit @ by_unit / w.sum() ** 2)
