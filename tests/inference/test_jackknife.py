"""The delete-a-group jackknife and Welch's error, against SciPy, statsmodels and deletion from kept rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from foldaway.inference.jackknife import Cells, adjusted_mean, cells_of, jackknife, mean, ratio, total_per_unit
from foldaway.inference.levels import Levels, difference_of, effect_of, relative_of
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import spread_of, welch, welch_total
from foldaway.tallies.sums import Sums, SumsShape

GROUPS = 16
PI = np.array([0.4, 0.6])


def make(seed: int, n: int = 600, units: int = 90, level: float = 5.0, both: bool = False) -> pd.DataFrame:
    """Rows of units of unequal size; with `both`, a unit's records are in either arm."""
    rng = np.random.default_rng(seed)
    unit = rng.choice(units, n, p=rng.dirichlet(np.ones(units)))
    arm = rng.random(n if both else units) < PI[1]
    x = rng.normal(size=units)[unit] + rng.normal(size=n)
    y = level + x + rng.normal(size=units)[unit] + rng.normal(size=n)
    rows = pd.DataFrame({"unit": unit, "arm": (arm if both else arm[unit]).astype(int), "x": x, "y": y})
    rows["u"] = rng.poisson(3, n) + 1.0
    rows["adjusted"] = y - 0.8 * (x - 0.1)
    rows["group"] = rng.integers(0, GROUPS, units)[unit]
    rows["w"] = rng.uniform(0.3, 2, n)
    return rows


def folded(rows: pd.DataFrame, *, weighted: bool = False, groups: int = GROUPS) -> Sums:
    sums = Sums.empty(SumsShape(2, 2, groups, adjusted=True, weighted=weighted))
    values = rows[["y", "u", "adjusted", "u"]].to_numpy().T
    group = rows.group.to_numpy() if groups > 1 else None
    return sums.fold(rows.arm.to_numpy(), values, group, rows.w.to_numpy() if weighted else None)


# The jackknife.


def deleted(rows: pd.DataFrame, statistic: Callable[[pd.DataFrame], Any]) -> tuple[Any, Any]:
    """The statistic of all rows, and its jackknife covariance by deleting each group's rows in turn."""
    without = np.array([statistic(rows[rows.group != g]) for g in range(GROUPS)])
    away = without - without.mean(axis=0)
    return statistic(rows), (GROUPS - 1) / GROUPS * away.T @ away


def means(rows: pd.DataFrame) -> Any:
    return np.array([np.average(part.y, weights=part.w) for _, part in rows.groupby("arm")])


def recentred(rows: pd.DataFrame) -> Any:
    predicted = 0.7 * (rows.y - rows.adjusted)
    part = (rows.y - predicted + predicted.mean()).groupby(rows.arm)
    return part.mean().to_numpy()


def totals(rows: pd.DataFrame) -> Any:
    """Per assigned unit; a part of the groups stands for all of them."""
    scale = GROUPS / rows.group.nunique()
    return rows.groupby("arm").y.sum().to_numpy() / PI / 90 * scale


def ratios(rows: pd.DataFrame) -> Any:
    sums = rows.groupby("arm")[["y", "u"]].sum()
    return (sums.y / sums.u).to_numpy()


@pytest.mark.parametrize("both", [False, True], ids=["own arm", "both arms"])
@pytest.mark.parametrize("level", [5.0, 1e8])
def test_it_is_deletion_of_each_group_from_kept_rows(both: bool, level: float) -> None:
    rows = make(1, both=both, level=level)
    plain, weighted = folded(rows), folded(rows, weighted=True)
    cases = [
        (jackknife(mean, cells_of(weighted, 0)), means),
        (jackknife(lambda cells: adjusted_mean(cells, 0.7), cells_of(plain, 0)), recentred),
        (jackknife(lambda cells: total_per_unit(cells, PI, 90), cells_of(plain, 0)), totals),
        (jackknife(ratio, cells_of(plain, 0), cells_of(plain, 1)), ratios),
    ]
    for levels, statistic in cases:
        value, covariance = deleted(rows, statistic)
        np.testing.assert_allclose(levels.value, value, rtol=1e-12)
        # The rows' own arithmetic loses digits to the level, ours does not.
        np.testing.assert_allclose(levels.covariance, covariance, rtol=1e-9 if level < 10 else 1e-4)


def test_with_a_record_of_both_arms_in_every_group_it_is_the_paired_t_test() -> None:
    y = np.random.default_rng(2).normal(size=(32, 2)) * [1, 3]
    effect = effect_of(jackknife(mean, Cells(np.ones((32, 2)), y)), 1, 0.95)
    paired = stats.ttest_rel(y[:, 1], y[:, 0])
    assert effect.estimate is not None
    assert effect.std_error is not None
    assert effect.estimate / effect.std_error == pytest.approx(paired.statistic, rel=1e-12)
    assert effect.df == pytest.approx(paired.df, rel=1e-12)
    assert effect.p_value == pytest.approx(paired.pvalue, rel=1e-9)


def test_arms_in_different_groups_have_welchs_degrees_of_freedom() -> None:
    rng = np.random.default_rng(21)
    y = [rng.normal(size=20), 3 * rng.normal(size=12)]
    weight, value = np.zeros((32, 2)), np.zeros((32, 2))
    weight[:20, 0], weight[20:, 1], value[:20, 0], value[20:, 1] = 1, 1, *y
    found = difference_of(jackknife(mean, Cells(weight, value)), 1)
    # The jackknife's variance of a mean in n of the groups is s²/(n − 1), a little more than s²/n.
    variances = np.array([each.var(ddof=1) / (len(each) - 1) for each in y])
    freedom = np.array([19, 11])
    assert float(found.df) == pytest.approx(variances.sum() ** 2 / np.sum(variances**2 / freedom), rel=1e-12)
    assert float(found.variance) == pytest.approx(31 / 32 * variances.sum(), rel=1e-12)


def test_the_degrees_of_freedom_are_those_that_the_variance_has() -> None:
    """Over many trials of units in all groups: 2 (E V)² / Var V. With Welch's they would be twice as many."""
    rng = np.random.default_rng(22)
    value = rng.normal(size=(20_000, 16, 2))
    found = difference_of(jackknife(mean, Cells(np.ones_like(value), value)), 1)
    has = 2 * found.variance.mean() ** 2 / found.variance.var()
    assert has == pytest.approx(15, rel=0.05)
    np.testing.assert_allclose(found.df, 15)


def test_leading_axes_are_trials_of_their_own() -> None:
    many = [cells_of(folded(make(seed)), 0) for seed in range(3, 7)]
    stacked = Cells(
        np.stack([cells.weight for cells in many]),
        np.stack([cells.value for cells in many]),
        np.stack([cells.adjusted for cells in many if cells.adjusted is not None]),
    )
    rates = np.array([0.1, 0.5, 0.9, 1.3])
    batched = jackknife(lambda cells: adjusted_mean(cells, rates), stacked)
    for i, cells in enumerate(many):
        alone = jackknife(lambda cells, i=i: adjusted_mean(cells, rates[i]), cells)
        for name in ("value", "covariance", "doubt", "n", "groups"):
            np.testing.assert_allclose(getattr(batched, name)[i], getattr(alone, name), rtol=1e-12)
        np.testing.assert_allclose(relative_of(batched, 1, 0.9).lower[i], relative_of(alone, 1, 0.9).lower)


def test_few_groups_count_for_what_they_hold() -> None:
    """e = (Σ n)²/Σ n²: of three groups with 8, 1 and 1 records little more than one is effective."""
    weight = np.zeros((16, 2))
    weight[:, 0], weight[:6, 1] = 4, [8, 1, 1, 1, 1, 1]
    levels = jackknife(mean, Cells(weight, weight * np.arange(16)[:, None]))
    np.testing.assert_allclose(1 / np.diag(levels.doubt), [15, 13**2 / 69 - 1])
    assert levels.groups is not None
    assert levels.groups.tolist() == [16, 6]


@pytest.mark.parametrize(("groups", "reliable"), [(1, False), (4, False), (5, True)])
def test_under_five_groups_the_error_is_withheld_with_the_reason(groups: int, reliable: bool) -> None:
    rng = np.random.default_rng(9)
    weight = np.zeros((16, 2))
    weight[:, 0], weight[:groups, 1] = 4, 4
    effect = effect_of(jackknife(mean, Cells(weight, weight * rng.normal(5, 1, (16, 2)))), 1, 0.95)
    assert effect.reliable is reliable
    assert effect.estimate is not None
    assert (effect.std_error is not None) is reliable
    assert (effect.relative is not None) is reliable
    if not reliable:
        assert f"only {groups} of the groups" in effect.why


def test_an_empty_arm_has_nothing_to_tell() -> None:
    effect = effect_of(jackknife(mean, Cells(np.eye(2)[[0] * 16], np.ones((16, 2)))), 1, 0.95)
    assert (effect.estimate, effect.std_error, effect.reliable) == (None, None, False)
    assert "no records" in effect.why


# Welch.


def test_for_independent_records_it_is_scipys_welch() -> None:
    rows = make(11)
    effect = effect_of(welch(spread_of(folded(rows, groups=1), 0)), 1, 0.9)
    y = [rows.y[rows.arm == a] for a in (0, 1)]
    scipys = stats.ttest_ind(y[1], y[0], equal_var=False)
    low, high = scipys.confidence_interval(0.9)
    expected = (scipys.df, scipys.pvalue, low, high)
    assert (effect.df, effect.p_value, effect.ci_lower, effect.ci_upper) == pytest.approx(expected, rel=1e-9)


def test_with_weights_it_is_the_robust_error_of_a_weighted_mean() -> None:
    rows = make(12)
    levels = welch(spread_of(folded(rows, weighted=True), 0))
    for a in range(2):
        part = rows[rows.arm == a]
        fit = sm.WLS(part.y, np.ones(len(part)), weights=part.w).fit(cov_type="HC1")
        assert levels.value[a] == pytest.approx(fit.params.iloc[0], rel=1e-12)
        assert levels.covariance[a, a] == pytest.approx(fit.bse.iloc[0] ** 2, rel=1e-10)


def test_adjusted_is_the_regression_on_arms_and_prediction_with_arms_weighted_alike() -> None:
    rows = make(13)
    rows = rows[(rows.arm == 0) | (rows.index % 2 == 0)].reset_index(drop=True)  # of unequal size
    spread = spread_of(folded(rows), 0)
    rate = contrast_rate(spread).beta
    levels = welch(spread, rate)
    X = np.column_stack([np.ones(len(rows)), rows.arm, rows.y - rows.adjusted])
    fit = sm.WLS(rows.y, X, weights=1 / rows.groupby("arm").y.transform("size") ** 2).fit()
    assert float(rate) == pytest.approx(fit.params.iloc[2], rel=1e-11)
    found = difference_of(levels, 1)
    assert float(found.estimate) == pytest.approx(fit.params.iloc[1], rel=1e-11)
    # The error is that of a difference of means of residuals, given λ.
    left = rows.y - float(rate) * (rows.y - rows.adjusted)
    scipys = stats.ttest_ind(left[rows.arm == 1], left[rows.arm == 0], equal_var=False)
    assert float(found.estimate) / np.sqrt(float(found.variance)) == pytest.approx(scipys.statistic, rel=1e-10)
    clustered = jackknife(lambda cells: adjusted_mean(cells, rate), cells_of(folded(rows), 0))
    np.testing.assert_allclose(clustered.value, levels.value, rtol=1e-12)
    levels_at_means = fit.params.iloc[0] + fit.params.iloc[2] * X[:, 2].mean() + np.array([0, fit.params.iloc[1]])
    np.testing.assert_allclose(levels.value, levels_at_means, rtol=1e-11)


def test_the_covariance_of_recentred_levels_is_that_of_their_parts() -> None:
    """By simulation: levels share the overall mean of the prediction, which a relative effect has to know."""
    rng = np.random.default_rng(20)
    found, told = [], []
    for _ in range(1500):
        arm, x = rng.integers(0, 2, 200), rng.normal(size=200)
        y = 2 * x + rng.normal(size=200) * (1 + arm)
        sums = Sums.empty(SumsShape(2, 1, 1, adjusted=True)).fold(arm, np.stack([y, y - 1.6 * x]))
        levels = welch(spread_of(sums, 0), 1.1)
        found.append(levels.value)
        told.append(levels.covariance)
    np.testing.assert_allclose(np.mean(told, axis=0), np.cov(np.array(found).T), rtol=0.1)


def test_a_worthless_prediction_is_not_used() -> None:
    rows = make(14).assign(adjusted=lambda table: table.y - 3.0)
    assert float(contrast_rate(spread_of(folded(rows), 0)).beta) == 0


def test_totals_are_the_papers_inverse_probability_estimate() -> None:
    rows = make(15)
    found = difference_of(welch_total(spread_of(folded(rows), 0), PI), 1)
    z = np.where(rows.arm == 1, rows.y / PI[1], -rows.y / PI[0])
    fit = sm.OLS(z, np.ones(len(z))).fit()
    assert float(found.estimate) == pytest.approx(fit.params[0], rel=1e-10)
    assert np.sqrt(float(found.variance)) == pytest.approx(fit.bse[0], rel=1e-10)


def test_a_single_record_shows_no_spread() -> None:
    rows = make(16).iloc[:30]
    rows = pd.concat([rows[rows.arm == 0], rows[rows.arm == 1].iloc[:1]])
    effect = effect_of(welch(spread_of(folded(rows), 0)), 1, 0.95)
    assert not effect.reliable
    assert "single record" in effect.why
    assert effect.std_error is effect.relative is None


# Relative effects.


def levels_of(seed: int, control: float, n: int = 50_000) -> tuple[Levels, Any]:
    rng = np.random.default_rng(seed)
    y = rng.normal([control, 1.2 * control], 1, (n, 2))
    sums = Sums.empty(SumsShape(2, 1, 1)).fold(np.tile([0, 1], n), y.reshape(1, -1))
    return welch(spread_of(sums, 0)), y


def test_fiellers_set_ends_where_a_test_of_the_ratio_does() -> None:
    levels, y = levels_of(17, 0.03)
    relative = relative_of(levels, 1, 0.95)
    assert relative.bounded
    for end in (relative.lower, relative.upper):
        tested = stats.ttest_ind(y[:, 1], (1 + float(end)) * y[:, 0], equal_var=False)
        assert tested.pvalue == pytest.approx(0.05, abs=1e-4)
    # Far from zero, it is the delta method's.
    levels, _ = levels_of(18, 30.0)
    relative = relative_of(levels, 1, 0.95)
    half = float(relative.upper - relative.lower) / 2
    assert half == pytest.approx(stats.norm.ppf(0.975) * float(relative.std_error), rel=1e-3)


def test_a_control_that_cannot_be_told_from_zero_has_no_relative_effect() -> None:
    levels, _ = levels_of(19, 0.002)
    effect = effect_of(levels, 1, 0.95)
    assert effect.reliable
    assert effect.relative is effect.relative_ci_lower is effect.relative_std_error is None
    assert "cannot be told from zero" in effect.relative_why
