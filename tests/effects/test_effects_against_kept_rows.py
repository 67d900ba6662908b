"""Every estimator and kind of error equals statsmodels on the kept rows."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy import stats

import foldaway as fa
from foldaway.plan.reported import estimators_of
from kept_rows import covariate_columns, fitted, unit_degrees
from plans import replaced
from sizes import mostly_slow
from trials import folded, from_moments, known, make_trial, trials

TOLERANCE = 1e-9


def close(ours: float, theirs: float, scale: float = 0.0) -> bool:
    return abs(ours - theirs) <= TOLERANCE * max(abs(theirs), scale)


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@settings(max_examples=12, deadline=None)
@given(trials())
def test_every_estimate_and_error_is_that_of_the_kept_rows(drawn: tuple[fa.Plan, pd.DataFrame]) -> None:
    plan, rows = drawn
    plan = replaced(plan, estimators=[*estimators_of(plan), "horvitz_thompson"])
    cut = len(rows) // 3
    batches = (cut, 2 * cut) if not plan.whole_units else ()
    effects = from_moments(folded(plan, rows, *batches).effects(population=False))
    assert len(effects) == len(plan.outcomes) * (len(plan.arms) - 1) * sum(
        3 + 2 * plan.whole_units + (e in ("difference", "ipw") and not plan.weight)
        for e in (["ipw", "difference", "horvitz_thompson"] + (["regression", "interacted"] if plan.covariates else []))
    )
    for row in effects:
        if not row.reliable:  # an arm with hardly more records than covariates, or with few units
            continue
        estimate, error, fit = fitted(plan, rows, row.estimator, row.arm, row.outcome, row.se_kind)
        assert close(known(row.std_error), error), (row.estimator, row.se_kind)
        # An effect near zero is compared on the scale of its error.
        assert close(known(row.estimate), estimate, scale=error), (row.estimator, row.se_kind)
        if row.se_kind in ("classical", "HC0", "HC1"):
            assert row.df == fit.df_resid


@pytest.mark.parametrize(
    ("center", "spread", "outlier"),
    [(3.0, 1e-4, 0.0), (3.0, 1e-8, 0.0), (1e4, 1.0, 0.0), (1e7, 1.0, 0.0), (0.0, 1.0, 1e9)],
)
@pytest.mark.parametrize("estimator", ["regression", "interacted"])
def test_arms_whose_covariates_are_unlike_one_another(
    estimator: str, center: float, spread: float, outlier: float
) -> None:
    """Robust errors of each arm are taken in the arm's own frame; the reference is exact rational arithmetic."""
    rng = np.random.default_rng(4)
    n = 60
    group = np.array(["a", "b"])[np.arange(n) % 2]
    x = rng.normal(size=n)
    x[1::2] = center + spread * x[1::2]
    x[0] += outlier
    y = np.round(rng.normal(size=n) + 0.5 * (group == "b"), 6)
    plan = fa.Plan(
        name="unlike", arm="g", arms={"a": 0.5, "b": 0.5}, moments=fa.Moments(), outcomes=["y"], covariates=["x"]
    )
    trial = fa.Trial(plan)
    trial.fold({"g": group, "x": x, "y": y})
    row = trial.effects(population=False).filter(estimator=estimator, se_kind="HC0")[0]
    error = exact_hc0(estimator, (group == "b"), x, y)
    # The inputs themselves have no more digits than this about their means.
    assert row.std_error == pytest.approx(error, rel=max(1e-9, 1e-15 * (abs(center) / spread + outlier)))


def exact_hc0(estimator: str, treated: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """The HC0 error of the effect with every step in rational numbers."""
    X, Y = [Fraction(float(v)) for v in x], [Fraction(float(v)) for v in y]
    mean = sum(X, Fraction(0)) / len(X)
    rows = []
    for d, value in zip(treated, X, strict=True):
        centred = value - mean
        rows.append(
            [Fraction(1), Fraction(int(d)), centred, *([centred * int(d)] if estimator == "interacted" else [])]
        )
    k = len(rows[0])
    gram = [[sum((r[i] * r[j] for r in rows), Fraction(0)) for j in range(k)] for i in range(k)]
    inverse = [solved(gram, [Fraction(int(i == j)) for i in range(k)]) for j in range(k)]
    coef = solved(gram, [sum((r[i] * v for r, v in zip(rows, Y, strict=True)), Fraction(0)) for i in range(k)])
    variance = Fraction(0)
    for r, v in zip(rows, Y, strict=True):
        residual = v - sum(c * e for c, e in zip(coef, r, strict=True))
        variance += (sum(b * e for b, e in zip(inverse[1], r, strict=True)) * residual) ** 2
    return math.sqrt(variance)


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Gauss–Jordan elimination."""
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i and rows[j][i]:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [line[-1] for line in rows]


def test_hc2_is_welchs_test() -> None:
    plan, rows = make_trial(5, n=200, covariates=0)
    row = folded(plan, rows).effects(population=False).filter(estimator="difference", se_kind="HC2")[0]
    groups = [rows.loc[rows.group == arm, "y0"] for arm in ("arm1", "arm0")]
    welch = stats.ttest_ind(*groups, equal_var=False)
    assert row.statistic == pytest.approx(welch.statistic, rel=1e-10)
    assert row.df == pytest.approx(welch.df, rel=1e-10)
    assert row.p_value == pytest.approx(welch.pvalue, rel=1e-9)
    interval = welch.confidence_interval(0.95)
    assert (row.ci_lower, row.ci_upper) == pytest.approx((interval.low, interval.high), rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_clustered_intervals_use_t_with_the_degrees_of_freedom_that_units_give(weighted: bool) -> None:
    plan, rows = make_trial(6, n=400, arms=3, units=True, weighted=weighted)
    effects = folded(plan, rows).effects(population=False).filter(se_kind="CR1")
    assert {row.estimator for row in effects if row.reliable} == {"ipw", "difference", "regression", "interacted"}
    for row in effects:
        df = unit_degrees(plan, rows, row.estimator, row.arm, row.outcome)
        assert row.df == pytest.approx(df, rel=1e-9)
        assert row.p_value == pytest.approx(2 * stats.t.sf(abs(known(row.statistic)), df), rel=1e-8)


@pytest.mark.parametrize(
    "estimator", mostly_slow(["horvitz_thompson", "ipw", "difference", "regression", "interacted"], "ipw", "regression")
)
def test_the_relative_effect_is_the_delta_method_on_the_kept_rows(estimator: str) -> None:
    plan, rows = make_trial(7, n=150, arms=3, covariates=2, shift=10)
    plan = replaced(plan, estimators=[estimator])
    row = folded(plan, rows).effects(population=False).filter(estimator=estimator, se_kind="HC0", arm="arm2")[0]
    level = row.control_level
    assert row.relative == pytest.approx(row.estimate / level, rel=1e-12)
    # Independently: the ratio's standard error by numerical differentiation over perturbed record weights
    # (the infinitesimal jackknife), which for these estimators is HC0.
    n = len(rows)
    base = np.ones(n)

    def ratio(weights: np.ndarray) -> float:
        effect, control = _effect_and_level(plan, rows, estimator, weights)
        return effect / control

    step = 1e-4
    influence = np.array([(ratio(base + step * e) - ratio(base - step * e)) / (2 * step) for e in np.eye(n)])
    fixed_centre = float(np.sqrt(np.sum(influence**2)))
    assert row.relative_std_error == pytest.approx(fixed_centre, rel=1e-4)


def _effect_and_level(plan: fa.Plan, rows: pd.DataFrame, estimator: str, w: np.ndarray) -> tuple[float, float]:
    y = rows["y0"].to_numpy()
    treated, control = (rows.group == "arm2").to_numpy(), (rows.group == "arm0").to_numpy()
    if estimator == "horvitz_thompson":
        up, down = w * treated * y / plan.arms["arm2"], w * control * y / plan.arms["arm0"]
        return (up.sum() - down.sum()) / w.sum(), down.sum() / w.sum()
    x = covariate_columns(plan, rows)
    x = x - x.mean(axis=0)  # the centre is taken as fixed
    arms = np.column_stack([(rows.group == a).to_numpy(float) for a in plan.arms])
    if estimator in ("difference", "ipw"):
        X = arms
    elif estimator == "regression":
        X = np.column_stack([arms, x])
    else:
        X = np.column_stack([arms, *(arms[:, [a]] * x for a in range(3))])
    root = np.sqrt(w)[:, None]
    coef = np.linalg.lstsq(X * root, y * root[:, 0], rcond=None)[0]
    return float(coef[2] - coef[0]), float(coef[0])


def test_the_populations_effect_adds_the_variance_of_the_covariate_mean() -> None:
    plan, rows = make_trial(8, n=400, covariates=2)
    trial = folded(plan, rows)
    of_sample = trial.effects(population=False).filter(estimator="interacted", se_kind="HC0")[0]
    of_population = trial.effects(population=True).filter(estimator="interacted", se_kind="HC0")[0]
    x = covariate_columns(plan, rows)
    y = rows["y0"].to_numpy()
    slopes = []
    for arm in plan.arms:
        mine = (rows.group == arm).to_numpy()
        X = np.column_stack([np.ones(mine.sum()), x[mine]])
        slopes.append(np.linalg.lstsq(X, y[mine], rcond=None)[0][1:])
    delta = slopes[1] - slopes[0]
    extra = delta @ np.cov(x.T, bias=True) @ delta / len(rows)
    assert of_population.estimate == of_sample.estimate
    assert of_population.std_error**2 == pytest.approx(of_sample.std_error**2 + extra, rel=1e-9)


def test_an_adjustment_is_that_of_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    plan, rows = make_trial(9, n=300, arms=4, outcomes=2)
    for ours, theirs in (("holm", "holm"), ("benjamini-hochberg", "fdr_bh")):
        trial = folded(msgspec.structs.replace(plan, correction=ours), rows)
        family = trial.effects().filter(estimator="regression", se_kind="HC1")
        expected = multipletests([row.p_value for row in family], method=theirs)[1]
        assert [row.p_adjusted for row in family] == pytest.approx(list(expected), rel=1e-12)


def test_the_sample_ratio_is_checked() -> None:
    plan, rows = make_trial(10, n=4000, covariates=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert folded(plan, rows).effects(population=False).sample_ratio.ok
    trial = folded(plan, rows[(rows.group == "arm0") | (np.arange(len(rows)) % 4 > 0)])
    with pytest.warns(fa.SampleRatioWarning, match="do not fit"):
        effects = trial.effects(population=False)
    ratio = effects.sample_ratio
    assert ratio.expected == {arm: pytest.approx(share * trial.n) for arm, share in plan.arms.items()}
    assert not ratio.ok
    assert "! The arms' records" in str(effects)
