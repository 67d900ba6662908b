"""Coefficients and their map to sums, against statsmodels on kept rows; a regression's jackknife, against Petersen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from foldaway.errors import EstimateError
from foldaway.inference.adjusting import fit_start, significant
from foldaway.inference.group_regression import (
    jackknife_least_squares,
    jackknife_regression,
    regression_welch,
    spent_by_slopes,
)
from foldaway.inference.jackknife import adjusted_mean, cells_of, jackknife
from foldaway.inference.levels import difference_of
from foldaway.inference.unequal_arms import contrast_coefficients, contrast_rate
from foldaway.inference.welch import spread_of
from foldaway.numerics.block import Shape
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.predictor import Predictor, lean
from foldaway.tallies.sums import Sums, SumsShape, group_of

DATA = Path(__file__).parents[1] / "data"
GROUPS = 8


def make(seed: int, n: int = 900, level: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"arm": rng.choice(3, n, p=[0.5, 0.3, 0.2]), "group": rng.integers(0, GROUPS, n), "x1": rng.normal(50, 2, n)}
    )
    table["x2"] = rng.exponential(size=n) + 0.3 * table.x1
    table["y0"] = level + table.x1 + 0.2 * table.arm + rng.normal(size=n)
    table["y1"] = table.x2 * (1 + 0.3 * table.arm) + rng.normal(size=n)
    table["w"] = rng.uniform(0.3, 2, n)
    return table


def rows_of(table: pd.DataFrame, *columns: str) -> Any:
    return np.vstack([np.ones(len(table)), table[list(columns)].to_numpy().T])


def moments_of(
    table: pd.DataFrame, *, weighted: bool = False, covariates: tuple[str, ...] = ("x1", "x2")
) -> GroupMoments:
    moments = GroupMoments.empty(MomentsShape(3, GROUPS, Shape(1 + len(covariates), 2), weighted))
    for start in range(0, len(table), 250):
        part = table.iloc[start : start + 250]
        weight = part.w.to_numpy() if weighted else None
        rows = rows_of(part, *covariates, "y0", "y1")
        moments = moments.fold(part.arm.to_numpy(), rows, part.group.to_numpy(), weight)
    return moments


def kept(table: pd.DataFrame, outcome: str, *, weighted: bool = False, of: pd.DataFrame | None = None) -> Any:
    """Arms' effects (two), then slopes: least squares with records weighted by 1/n_a², the control's twice.

    The weights are those of all records, `of`.
    """
    every = table if of is None else of
    each = table.w if weighted else pd.Series(1.0, table.index)
    all_of = every.w if weighted else pd.Series(1.0, every.index)
    sums, squares = all_of.groupby(every.arm).sum(), (all_of**2).groupby(every.arm).sum()
    by_arm = squares / sums**3 * np.array([2, 1, 1])
    X = np.column_stack([np.ones(len(table)), table.arm == 1, table.arm == 2, table.x1, table.x2]).astype(float)
    return sm.WLS(table[outcome], X, weights=each * table.arm.map(by_arm)).fit(method="qr").params.to_numpy()[1:]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("level", [0.0, 1e6])
def test_coefficients_are_those_of_weighted_least_squares_with_and_without_each_group(
    weighted: bool, level: float
) -> None:
    table = make(1, level=level)
    start = fit_start(moments_of(table, weighted=weighted))
    assert start.predictor is not None
    assert start.without is not None
    for o, outcome in enumerate(["y0", "y1"]):
        expected = kept(table.assign(y0=table.y0 - level), outcome, weighted=weighted)[2:]
        np.testing.assert_allclose(start.predictor.slopes[o], expected, rtol=1e-8 if level else 1e-11)
        for g in range(GROUPS):
            part = table[table.group != g].assign(y0=table.y0 - level)
            expected = kept(part, outcome, weighted=weighted, of=table)[2:]
            np.testing.assert_allclose(
                start.without[g, o], expected, rtol=1e-8 if level else 1e-10, atol=1e-10 if level else 1e-13
            )


def test_with_coefficients_from_all_records_adjusted_is_the_regression_on_all_of_them() -> None:
    table = make(2)
    moments = moments_of(table)
    sums = lean(moments, fit_start(moments).predictor)
    for o, outcome in enumerate(["y0", "y1"]):
        expected = kept(table, outcome)[:2]
        rate = contrast_rate(spread_of(sums, o)).beta
        assert float(rate) == pytest.approx(1, abs=1e-12)  # the normal equations
        levels = jackknife(lambda cells, rate=rate: adjusted_mean(cells, rate), cells_of(sums, o))
        direct = jackknife_regression(moments, o)
        for arm in (1, 2):
            assert float(difference_of(levels, arm).estimate) == pytest.approx(expected[arm - 1], abs=1e-12)
            assert float(difference_of(direct, arm).estimate) == pytest.approx(expected[arm - 1], abs=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.82])
def test_with_nearly_equal_arms_the_slopes_are_the_pooled_regressions(share: float) -> None:
    table = make(4)
    least = table.arm.value_counts()[1]
    table = pd.concat([table[table.arm == 0].head(least), table[table.arm == 1].head(int(share * least))])
    X = np.column_stack([np.ones(len(table)), table.arm == 1, table.x1, table.x2]).astype(float)
    pooled = sm.OLS(table.y0, X).fit(method="qr").params.to_numpy()
    moments = moments_of(table)
    two = replace(
        moments,
        shape=moments.shape._replace(arms=2),
        moments=moments.moments[:2],
        records=moments.records[:2],
        absolute=moments.absolute[:2],
    )
    start = fit_start(two)
    assert start.predictor is not None
    np.testing.assert_allclose(start.predictor.slopes[0], pooled[2:], rtol=1e-10)
    assert float(difference_of(regression_welch(two.reframed(), 0), 1).estimate) == pytest.approx(pooled[1], abs=1e-12)


def test_no_other_slopes_make_the_difference_vary_less() -> None:
    """The law behind the slopes, arms of 90 and 10 % having slopes of their own."""
    rng = np.random.default_rng(6)
    arm, group = (rng.random(2000) < 0.1).astype(int), rng.integers(0, GROUPS, 2000)
    x = rng.normal(size=(2000, 2))
    y = np.where(arm == 1, -1.5, 1.5) * x[:, 0] + x[:, 1] + rng.normal(size=2000)
    moments = GroupMoments.empty(MomentsShape(2, GROUPS, Shape(3, 1))).fold(
        arm, np.vstack([np.ones(2000), x.T, y]), group
    )
    start = fit_start(moments)
    assert start.predictor is not None
    slopes = start.predictor.slopes[0]

    def variance(beta: Any) -> float:
        left = y - x @ beta
        return float(sum(left[arm == a].var() / np.sum(arm == a) for a in (0, 1)))

    others = [np.zeros(2), *(slopes + step for step in 0.01 * rng.normal(size=(50, 2)))]
    assert all(variance(slopes) < variance(other) for other in others)
    pooled = np.linalg.lstsq(np.column_stack([1 - arm, arm, x]), y, rcond=None)[0][2:]
    assert variance(slopes) < 0.6 * variance(pooled)


def test_slopes_are_spent_by_the_arms_that_choose_them() -> None:
    moments = moments_of(make(5)).reframed()
    spent = spent_by_slopes(moments)
    assert spent.sum() == pytest.approx(2)
    z = moments.moments.sum(axis=1)
    n = z[:, 0, 0]
    within = z - z[:, :1, :].swapaxes(-1, -2) * z[:, :1, :] / n[:, None, None]
    wanted = contrast_coefficients(within[:, 1:3, 1:3], within[:, 1:3, 3:], n)
    np.testing.assert_allclose(spent, wanted.freedom, rtol=1e-9)


def test_the_regressions_jackknife_fits_anew_without_each_group() -> None:
    table = make(3)
    levels = jackknife_regression(moments_of(table), 0)
    without = np.array([kept(table[table.group != g], "y0", of=table)[0] for g in range(GROUPS)])
    variance = (GROUPS - 1) / GROUPS * np.sum((without - without.mean()) ** 2)
    assert float(difference_of(levels, 1).variance) == pytest.approx(variance, rel=1e-9)


# The map to sums.


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cross_fitted", [False, True])
@pytest.mark.parametrize("level", [0.0, 1e7])
def test_the_map_gives_the_sums_that_folding_adjusted_records_gives(
    weighted: bool, cross_fitted: bool, level: float
) -> None:
    table = make(4, level=level)
    moments = moments_of(table, weighted=weighted)
    start = fit_start(moments)
    assert start.predictor is not None
    assert start.without is not None
    mapped = lean(moments, start.predictor, start.without if cross_fitted else None)
    x, y = table[["x1", "x2"]].to_numpy().T, table[["y0", "y1"]].to_numpy().T
    adjusted = np.empty_like(y)
    for g in range(GROUPS):
        here = table.group.to_numpy() == g
        slopes = start.without[g] if cross_fitted else start.predictor.slopes
        adjusted[:, here] = Predictor(start.predictor.center, slopes).adjusted(x[:, here], y[:, here])
    folded = Sums.empty(SumsShape(3, 2, GROUPS, adjusted=True, weighted=weighted))
    weight = table.w.to_numpy() if weighted else None
    folded = folded.fold(table.arm.to_numpy(), np.vstack([y, adjusted]), table.group.to_numpy(), weight)
    assert mapped.shape == folded.shape
    np.testing.assert_allclose(mapped.level, folded.level)
    np.testing.assert_array_equal(mapped.records, folded.records)
    rounding = 1e-8 if level else 1e-10
    for name in ("total", "mass", "first", "square", "cross", "absolute", *(["weight"] if weighted else [])):
        one, two = getattr(mapped, name), getattr(folded, name)
        np.testing.assert_allclose(one, two, rtol=rounding, atol=rounding * np.abs(two).max(), err_msg=name)


def test_without_a_start_the_outcomes_alone_are_left() -> None:
    moments = moments_of(make(5))
    sums = lean(moments, None)
    assert not sums.shape.adjusted
    np.testing.assert_allclose(
        sums.total, lean(moments, fit_start(moments).predictor).unadjusted().total, rtol=1e-9, atol=1e-9
    )


# What a start cannot show.


def test_directions_that_were_not_shown_get_zero() -> None:
    table = make(6).assign(rare=0.0)
    start = fit_start(moments_of(table, covariates=("x1", "rare", "x2")))
    assert start.predictor is not None
    assert start.without is not None
    assert np.all(start.predictor.slopes[:, 1] == 0)
    np.testing.assert_allclose(start.predictor.slopes[0, [0, 2]], kept(table, "y0")[2:], rtol=1e-10)
    # Shown in one group only, it is not known to the others' coefficients without that group.
    table.loc[(table.group == 3) & (table.x2 > 16), "rare"] = 1.0
    start = fit_start(moments_of(table, covariates=("x1", "rare", "x2")))
    assert start.without is not None
    assert np.abs(start.without[3, :, 1]).max() < 1e-6
    assert np.abs(start.without[2, :, 1]).max() > 1e-3


def test_a_repeated_covariate_changes_no_prediction() -> None:
    table = make(7)
    once, twice = (fit_start(moments_of(table, covariates=names)) for names in (("x1", "x2"), ("x1", "x2", "x1")))
    assert once.predictor is not None
    assert twice.predictor is not None
    y = np.zeros((2, len(table)))
    one = once.predictor.adjusted(table[["x1", "x2"]].to_numpy().T, y)
    two = twice.predictor.adjusted(table[["x1", "x2", "x1"]].to_numpy().T, y)
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-9)


def test_few_records_are_not_adjusted_and_the_reason_says_how_many_it_takes() -> None:
    assert fit_start(moments_of(make(8, n=10))).predictor is not None
    start = fit_start(moments_of(make(8, n=9)))
    assert start.predictor is None
    assert "to adjust for 2 columns of covariates takes 10 records; so far there are fewer." in start.why
    assert not lean(moments_of(make(8, n=9)), start.predictor).shape.adjusted
    bare = fit_start(moments_of(make(8), covariates=()))
    assert "no covariates" in bare.why


def test_coefficients_that_leave_memory_have_three_digits() -> None:
    table = make(9, n=2000)
    exact, told = fit_start(moments_of(table)).predictor, fit_start(moments_of(table), told=True).predictor
    assert exact is not None
    assert told is not None
    for slope in told.slopes.ravel():
        assert float(f"{slope:.3g}") == slope
    np.testing.assert_allclose(told.slopes, exact.slopes, rtol=0.005)
    assert np.all(np.abs(told.center - exact.center) <= 0.5 * table[["x1", "x2"]].std().to_numpy())
    assert not np.allclose(told.center, exact.center, rtol=0, atol=1e-6)


def test_earlier_records_without_arms_calibrate_a_plan() -> None:
    table = make(12, n=2500)
    moments = GroupMoments.empty(MomentsShape(1, 1, Shape(3, 2)))
    start = fit_start(moments.fold(np.zeros(2500, int), rows_of(table, "x1", "x2", "y0", "y1")))
    assert start.predictor is not None
    assert start.without is not None
    X = sm.add_constant(table[["x1", "x2"]])
    for o, outcome in enumerate(["y0", "y1"]):
        expected = sm.OLS(table[outcome], X).fit().params.to_numpy()[1:]
        np.testing.assert_allclose(start.predictor.slopes[o], expected, rtol=1e-10)
    np.testing.assert_allclose(start.predictor.center, table[["x1", "x2"]].mean(), rtol=1e-12)


@pytest.mark.parametrize(("value", "rounded"), [(1234.5, 1230), (0.00098765, 0.000988), (-5.0, -5), (0.0, 0)])
def test_significant_digits(value: float, rounded: float) -> None:
    assert significant(np.array([value]), 3)[0] == pytest.approx(rounded, rel=1e-15)


# A regression on its own.


def petersen() -> pd.DataFrame:
    return pd.read_csv(DATA / "petersen_test_data.txt", sep=r"\s+", names=["firm", "year", "x", "y"])


def test_petersens_error_by_firm() -> None:
    """Published: .0506 by firm for the slope. The mean over 200 ways to deal the firms, within 2 %."""
    table = petersen()
    z = rows_of(table, "x", "y")
    firm = pd.factorize(table.firm)[0]
    hashes = np.random.default_rng(1).integers(0, 2**64, (200, 500), dtype=np.uint64)
    errors = []
    for dealt in hashes:
        moments = GroupMoments.empty(MomentsShape(1, 128, Shape(2, 1)))
        # In shuffled pieces: a firm's rows need not come together.
        found = jackknife_least_squares(moments.fold(np.zeros(len(firm), int), z, group_of(dealt, 128)[firm]))
        errors.append(np.sqrt(np.diag(found)))
    constant, slope = np.mean(errors, axis=0)
    assert slope == pytest.approx(0.0506, rel=0.02)
    assert constant == pytest.approx(0.0670, rel=0.02)


def test_a_regressions_jackknife_is_deletion_of_kept_rows() -> None:
    table = make(10)
    z = rows_of(table, "x1", "x2", "y0")[1:]  # no intercept
    moments = GroupMoments.empty(MomentsShape(1, GROUPS, Shape(2, 1), weighted=True))
    group = table.group.to_numpy()
    for part in np.array_split(np.random.default_rng(1).permutation(len(table)), 7):
        moments = moments.fold(np.zeros(len(part), int), z[:, part], group[part], table.w.to_numpy()[part])
    found = jackknife_least_squares(moments)
    X = table[["x1", "x2"]]
    left = [group != g for g in range(GROUPS)]
    without = np.array([sm.WLS(table.y0[i], X[i], weights=table.w[i]).fit().params for i in left])
    away = without - without.mean(axis=0)
    np.testing.assert_allclose(found, (GROUPS - 1) / GROUPS * away.T @ away, rtol=1e-8)


def test_a_coefficient_that_rests_on_one_group_has_no_error() -> None:
    table = make(11)
    table["x2"] = ((table.group == 3) & (table.x1 > 50)).astype(float)
    moments = GroupMoments.empty(MomentsShape(1, GROUPS, Shape(3, 1)))
    moments = moments.fold(np.zeros(len(table), int), rows_of(table, "x1", "x2", "y0"), table.group.to_numpy())
    with pytest.raises(EstimateError, match="one group alone"):
        jackknife_least_squares(moments)
    with pytest.raises(EstimateError, match="at least 5 groups"):
        jackknife_least_squares(
            GroupMoments.empty(moments.shape).fold([0, 0], rows_of(table.iloc[:2], "x1", "x2", "y0"), [0, 1])
        )
