"""The studies of sums by group, on a small scale: their parts are what their pages say, and so are their answers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies.groups_coverage import DESIGNS, Units  # noqa: E402

from studies import groups_anytime, groups_coverage, groups_that_fit, site_coverage  # noqa: E402


def test_cr1_on_units_sums_is_statsmodels_on_rows() -> None:
    rng = np.random.default_rng(1)
    size = rng.integers(1, 9, 40)
    unit = np.repeat(np.arange(40), size)
    treated = rng.random(40) < 0.5
    y = rng.normal(size=len(unit)) + rng.normal(size=40)[unit]
    units = Units(size[None].astype(float), np.bincount(unit, y)[None].astype(float), treated[None])
    X = np.column_stack([np.ones(len(unit)), treated[unit]])
    fit = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": unit}, use_t=True)
    low, high = fit.conf_int()[1]
    covers, half = groups_coverage.cr1(units, float(fit.params[1]))
    assert covers[0]
    assert half[0] == pytest.approx((high - low) / 2, rel=1e-9)
    assert not groups_coverage.cr1(units, float(fit.params[1] + 1.01 * half[0]))[0][0]


def test_the_regression_beside_it_is_statsmodels() -> None:
    rng = np.random.default_rng(2)
    arm, x, y, _ = groups_coverage.records(rng, DESIGNS[0])
    estimate, half = groups_coverage.regression(arm, x, y)
    fit = sm.OLS(y, sm.add_constant(np.column_stack([arm, x.T]))).fit(cov_type="HC1", use_t=True)
    low, high = fit.conf_int()[1]
    assert (float(estimate - half), float(estimate + half)) == pytest.approx((low, high), rel=1e-8)


def test_units_are_dealt_whole() -> None:
    rng = np.random.default_rng(3)
    units = groups_coverage.draw(rng, "unequal", 7, 60, 5, 0.0, 0.3)
    assert (units.treated.sum(axis=1) == 5).all()
    assert units.size.min() >= 1
    cells = groups_coverage.by_group(rng, units, 16)
    np.testing.assert_allclose(cells.weight.sum(axis=1)[:, 1], np.where(units.treated, units.size, 0).sum(axis=1))
    np.testing.assert_allclose(cells.value.sum(axis=(1, 2)), units.total.sum(axis=1))


def test_by_groups_few_treated_units_are_covered_where_cr1_falls_short() -> None:
    found = groups_coverage.clustered("unequal", 200, 7, trials=300, seed=4)
    assert max(found.cr1, found.bootstrap) < 0.92
    assert found.groups[128].covers > 0.92
    assert found.groups[128].told > 0.9
    assert groups_coverage.clustered("unequal", 200, 3, trials=50, seed=4).groups[128].told == 0


def test_within_sites_of_unequal_sizes_and_shares_effects_cover_where_the_plain_difference_does_not() -> None:
    """And the answer speaks of both, and of the mean over sites."""
    design = site_coverage.DESIGNS[5]
    found = site_coverage.covered(design, trials=150, seed=3)
    assert found.within > 0.9 > 0.6 > found.pooled
    assert found.told > 0.95
    assert found.over > 0.9
    page = site_coverage.findings({design: found}, 150)
    assert f"as few as {100 * found.pooled:.1f} %" in page.answer


def test_relative_effects_of_a_control_at_zero_are_withheld() -> None:
    found = groups_coverage.relative(0, trials=300, seed=5)
    assert found.told == found.wrong < 0.1
    far = groups_coverage.relative(3, trials=300, seed=5)
    assert far.told > 0.7
    assert far.wrong < 0.08


@pytest.mark.parametrize(
    "design", [pytest.param(DESIGNS[2], marks=pytest.mark.slow), DESIGNS[5]], ids=lambda design: design.what
)
def test_adjusted_effects_cover_and_are_as_narrow_as_a_regression(design: groups_coverage.Design) -> None:
    shares, ratio = groups_coverage.adjustments(design, trials=150, seed=6)
    difference, jackknifed, welchs, _ = shares
    assert min(jackknifed.covers, welchs.covers, ratio.covers) > 0.89
    assert jackknifed.width < 1.15 < 2 < difference.width


def test_the_jackknife_at_looks_is_that_of_the_records_so_far() -> None:
    rng = np.random.default_rng(7)
    draws = groups_anytime.draw(rng, 2, 600, 0.5, "lognormal revenue", 0.2)
    group = rng.integers(0, 128, 600, dtype=np.uint8)
    looks = np.array([20, 41, 59])
    levels = groups_anytime.by_groups(draws, 1, looks, group, 16)
    sums = groups_anytime.at_looks(draws, draws.y)
    for i, look in enumerate(looks):
        so_far = slice(0, (look + 1) * groups_anytime.EVERY)
        rows = pd.DataFrame({"arm": draws.treated[1], "y": draws.y[1], "group": group % 16})[so_far]
        np.testing.assert_allclose(levels.value[i], rows.groupby("arm").y.mean(), rtol=1e-12)
        np.testing.assert_allclose(sums[1, look], rows.groupby("arm").y.sum(), rtol=1e-12)
        without = np.array([rows[rows.group != g].groupby("arm").y.mean() for g in range(16)])
        away = without - without.mean(axis=0)
        np.testing.assert_allclose(levels.covariance[i], 15 / 16 * away.T @ away, rtol=1e-9)


def test_rare_conversions_in_unequal_arms_no_longer_raise_alarms() -> None:
    found = groups_anytime.study(0.1, "conversion 2 %", 0.0, trials=60, records=20_000, seed=8)
    assert found.plain > 3
    assert max(found.welch, *found.jackknife.values()) <= 5
    assert found.shown > 50
    assert 9_000 < found.first < 12_000  # 20 conversions in an arm with a tenth of the records


def test_the_pages_say_what_was_found() -> None:
    cells = {(0.5, "conversion 20 %", 0.0): groups_anytime.study(0.5, "conversion 20 %", 0.0, 20, 2000, 9)}
    page = groups_anytime.findings(cells, 20, 2000).page("groups_anytime", "python")
    assert "In balanced designs the interval" in " ".join(page.split())
    results = groups_coverage.Results(
        {("unequal", 50, None): groups_coverage.clustered("unequal", 50, None, 20, 9)},
        {2: groups_coverage.relative(2, 20, 9)},
        {DESIGNS[7]: groups_coverage.adjustments(DESIGNS[7], 5, 9)},
    )
    page = groups_coverage.findings(results, 20).page("groups_coverage", "python")
    assert "## Relative effects" in page
    assert DESIGNS[7].what in page


def test_the_error_of_groups_that_fit_is_cr1_within_its_spread_and_leaves_nobody_alone() -> None:
    rows = groups_that_fit.records(np.random.default_rng(2), 300)
    X = sm.add_constant((rows["arm"] == "new").astype(float))
    kept = sm.OLS(rows["y"], X).fit(cov_type="cluster", cov_kwds={"groups": rows["unit"]})
    assert groups_that_fit.cr1(rows) == pytest.approx(kept.bse[1])
    found = groups_that_fit.study(4_000, 1.0, keys=8, seed=3)
    assert found.groups == (128, 32, 16)
    assert found.ratio == pytest.approx(1, abs=0.1)
    assert found.spread[0] < 0.15 < 0.5
    assert found.alone[0] < 0.01
    assert "costs privacy" in " ".join(
        groups_that_fit.findings({(4_000, guess): found for guess in (1.0, 0.1, 10.0)}, 8).page("x", "y").split()
    )
