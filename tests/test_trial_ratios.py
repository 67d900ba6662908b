"""Ratios and shares: what NumPy computes of kept rows, however these are batched, merged and saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.numbers import relative_interval_text
from foldaway.inference.jackknife import Cells, jackknife
from foldaway.inference.levels import difference_of
from foldaway.keeping.secret import Secret
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.tallies.sums import group_of

KEY = bytes(range(16))
GROUPS = 32


def plan_of(*outcomes: Any, **settings: Any) -> fa.Plan:
    base: dict[str, Any] = {"name": "ratio", "arm": "g", "arms": {"a": 0.5, "b": 0.5}, "expected_units": 20 * GROUPS}
    return fa.Plan(**{**base, "outcomes": list(outcomes), **settings})


def made(n: int = 2_000, seed: int = 11) -> pd.DataFrame:
    """Units differ in how often they see a page and how readily they click; x tells of both."""
    rng = np.random.default_rng(seed)
    unit = rng.integers(0, 250, n)
    x = rng.normal(size=250)[unit] + 0.5 * rng.normal(size=n)
    rows = pd.DataFrame({"g": np.where(np.arange(250) % 2 == 0, "a", "b")[unit], "u": unit, "x": x})
    rows["views"] = rng.poisson(np.exp(1.5 + 0.3 * x)) + 1
    rows["clicks"] = rng.binomial(rows["views"], 1 / (1 + np.exp(1 - 0.4 * x)))
    rows["k"] = rng.uniform(0.5, 2, n)
    return rows


def folded(plan: fa.Plan, rows: pd.DataFrame, parts: int = 1) -> fa.Trial:
    trial = fa.Trial(plan, key=KEY)
    for part in np.array_split(np.arange(len(rows)), parts):
        trial.fold(rows.iloc[part])
    return trial


def ways(plan: fa.Plan, rows: pd.DataFrame) -> list[fa.Trial]:
    """The same records in one batch, in many, merged, and through a saved state."""
    saved = fa.Trial.loads(folded(plan, rows[:700]).exchanged(), key=KEY)
    saved.fold(rows[700:])
    return [folded(plan, rows), folded(plan, rows, 23), folded(plan, rows[:300]) + folded(plan, rows[300:]), saved]


def the_row(trial: fa.Trial, estimator: str, kind: str) -> Effect:
    [row] = trial.effects().filter(estimator=estimator, se_kind=kind)
    return row


def groups_of(rows: pd.DataFrame) -> Any:
    import pyarrow as pa

    hashes = hash_identifiers(pa.array(rows["u"].astype(str)).cast(pa.binary()), Secret(KEY).of_groups())
    return group_of(hashes, GROUPS)


def jackknifed(effect: Any, rows: pd.DataFrame) -> float:
    """The standard error by the definition: the effect of kept rows without each group."""
    groups = groups_of(rows)
    without = [effect(rows[groups != g]) for g in range(GROUPS)]
    return float(np.sqrt((GROUPS - 1) * np.var(without)))


def plain(rows: pd.DataFrame) -> float:
    sums = rows.groupby("g")[["clicks", "views"]].sum()
    ratios = sums["clicks"] / sums["views"]
    return float(ratios["b"] - ratios["a"])


def adjusted(rows: pd.DataFrame) -> float:
    """The ratio of adjusted means, each from a regression on kept rows at the overall mean of x."""
    design = np.column_stack([rows["g"] == "a", rows["g"] == "b", rows["x"] - rows["x"].mean()]).astype(float)
    levels = np.linalg.lstsq(design, rows[["clicks", "views"]].to_numpy(float), rcond=None)[0][:2]
    ratios = levels[:, 0] / levels[:, 1]
    return float(ratios[1] - ratios[0])


@pytest.mark.parametrize(
    ("covariates", "estimator", "effect"), [([], "difference", plain), (["x"], "adjusted", adjusted)]
)
def test_a_ratio_by_unit_is_the_jackknife_of_kept_rows(covariates: list[str], estimator: str, effect: Any) -> None:
    rows = made()
    for trial in ways(plan_of(fa.Ratio("clicks", "views"), unit="u", covariates=covariates), rows):
        row = the_row(trial, estimator, "jackknife")
        assert row.estimate == pytest.approx(effect(rows), rel=1e-9)
        assert row.std_error == pytest.approx(jackknifed(effect, rows), rel=1e-8)
        assert row.reliable


@pytest.mark.parametrize("weighted", [False, True])
def test_a_ratio_of_independent_records_is_the_delta_method_of_kept_rows(weighted: bool) -> None:
    rows = made()
    variances, ratios = {}, {}
    for arm, those in rows.groupby("g"):
        w = those["k"].to_numpy() if weighted else np.ones(len(those))
        u, d, n = those["clicks"].to_numpy(float), those["views"].to_numpy(float), len(those)
        ratios[arm] = (w @ u) / (w @ d)
        variances[arm] = n / (n - 1) * np.sum((w * (u - ratios[arm] * d)) ** 2) / (w @ d) ** 2
    plan = plan_of(fa.Ratio("clicks", "views"), **({"weight": "k"} if weighted else {}))
    for trial in ways(plan, rows):
        row = the_row(trial, "difference", "welch")
        assert row.estimate == pytest.approx(ratios["b"] - ratios["a"], rel=1e-9)
        assert row.std_error == pytest.approx(np.sqrt(variances["a"] + variances["b"]), rel=1e-9)
        assert row.relative == pytest.approx(ratios["b"] / ratios["a"] - 1, rel=1e-9)


def test_an_adjusted_ratio_of_independent_records_is_the_regression_of_the_linearised_ratio() -> None:
    rows = made(6_000)
    R = rows["clicks"].sum() / rows["views"].sum()
    linearised = (rows["clicks"] - R * rows["views"]) / rows["views"].mean()
    design = np.column_stack([np.ones(len(rows)), rows["g"] == "b", rows["x"]]).astype(float)
    fit = sm.OLS(linearised, design).fit(cov_type="HC2")
    for trial in ways(plan_of(fa.Ratio("clicks", "views"), covariates=["x"]), rows):
        row = the_row(trial, "adjusted", "welch")
        assert row.estimate == pytest.approx(adjusted(rows), rel=1e-9)
        # The two are alike to first order: what is left is of the order of the effect itself.
        assert row.estimate == pytest.approx(fit.params.iloc[1], abs=0.1 * fit.bse.iloc[1])
        assert row.std_error == pytest.approx(fit.bse.iloc[1], rel=0.02)
        assert row.std_error < 0.97 * the_row(trial, "difference", "welch").std_error  # type: ignore[operator]


@pytest.mark.parametrize("unit", ["u", None])
def test_a_saved_ratio_stays_adjusted(unit: str | None) -> None:
    rows = made(6_000)
    plan = plan_of(fa.Ratio("clicks", "views"), "views", covariates=["x"], unit=unit)
    rich, lean = folded(plan, rows), folded(plan, rows[:3_000])
    lean.fix()
    lean.fold(rows[3_000:])
    again = fa.Trial.loads(lean.dumps(), key=KEY)
    kind = "welch" if unit is None else "jackknife"
    one, other = (
        trial.effects().filter(outcome="clicks / views", estimator="adjusted", se_kind=kind)[0]
        for trial in (rich, again)
    )
    assert other.estimate == pytest.approx(one.estimate, abs=0.2 * one.std_error)
    assert other.std_error == pytest.approx(one.std_error, rel=0.05)
    calibrated = plan.calibrated(rows)
    assert calibrated.coefficients is not None
    assert set(calibrated.coefficients.slopes) == {"clicks", "views"}
    fixed = (
        folded(calibrated, rows, 5).effects().filter(outcome="clicks / views", estimator="adjusted", se_kind=kind)[0]
    )
    assert fixed.estimate == pytest.approx(one.estimate, abs=0.2 * one.std_error)
    assert fixed.std_error == pytest.approx(one.std_error, rel=0.05)


def test_a_ratio_over_nothing_is_withheld() -> None:
    rows = made(300)
    for views in (0.0, rows["views"] - rows["views"].mean()):
        effects = folded(plan_of(fa.Ratio("clicks", "views"), unit="u"), rows.assign(views=views)).effects()
        assert not any(row.reliable for row in effects)
        assert all(row.estimate is None for row in effects)
        assert "The denominator 'views' is zero in an arm, or too close to it" in str(effects)


def test_a_capped_mean_and_a_share_are_means_of_what_is_left() -> None:
    rows = made()
    plan = plan_of(fa.Mean("views", cap=(2, 6)), fa.Share("views", above=6), fa.Share("views", equals=6))
    bare = rows.assign(capped=rows["views"].clip(2, 6), above=rows["views"] > 6, equal=rows["views"] == 6)
    expected = folded(plan_of("capped", "above", "equal"), bare).effects()
    for trial in ways(plan, rows):
        for row, other in zip(trial.effects(), expected, strict=True):
            for field in ("estimate", "std_error", "df", "p_value", "anytime_ci_upper"):
                assert getattr(row, field) == pytest.approx(getattr(other, field), rel=1e-9)


def test_a_share_has_a_risk_ratio_and_an_odds_ratio_on_the_log_scale() -> None:
    rows = made(8_000)
    [row] = folded(plan_of(fa.Share("views", above=6)), rows).effects()
    hit = (rows["views"] > 6).groupby(rows["g"]).sum()
    n = rows.groupby("g").size()
    table = sm.stats.Table2x2([[hit["b"], n["b"] - hit["b"]], [hit["a"], n["a"] - hit["a"]]])
    # A t quantile and s²/n in place of the normal one and p(1 − p)/n: alike to a thousandth.
    assert row.odds_ratio == pytest.approx(table.oddsratio, rel=1e-9)
    assert [row.odds_ratio_ci_lower, row.odds_ratio_ci_upper] == pytest.approx(table.oddsratio_confint(), rel=1e-3)
    assert row.relative == pytest.approx(table.riskratio - 1, rel=1e-9)
    told = [1 + float(row.relative_ci_lower or 0), 1 + float(row.relative_ci_upper or 0)]
    assert told == pytest.approx(table.riskratio_confint(), rel=1e-3)
    assert row.odds_ratio_why is None
    [guard] = folded(plan_of(fa.Share("views", above=6, better="lower", margin=0.01)), rows).effects()
    assert relative_interval_text(guard).startswith("≤ ")  # a guardrail has one end, also as a share


def test_odds_of_units_are_the_jackknife_on_the_log_scale() -> None:
    """To first order: the delta method of the jackknife's covariance beside the jackknife of the logarithm itself."""
    rows = made(8_000)
    trial = folded(plan_of(fa.Share("views", above=6), unit="u"), rows)
    row = the_row(trial, "difference", "jackknife")
    group, hit = groups_of(rows), (rows["views"] > 6).to_numpy(float)
    arm = (rows["g"] == "b").to_numpy(int)
    cells = np.zeros((2, GROUPS, 2))
    np.add.at(cells[0], (group, arm), 1)
    np.add.at(cells[1], (group, arm), hit)
    levels = jackknife(lambda c: np.log(c.value / (c.weight - c.value)), Cells(cells[0], cells[1]))
    apart = difference_of(levels, 1)
    reach = stats.t.ppf(0.975, apart.df) * np.sqrt(apart.variance)
    assert np.log(float(row.odds_ratio or 0)) == pytest.approx(float(apart.estimate), rel=1e-9)
    assert np.log(float(row.odds_ratio_ci_upper or 0)) == pytest.approx(float(apart.estimate + reach), abs=0.02 * reach)


def test_shares_of_nobody_and_of_everybody_have_no_ratio_and_no_odds() -> None:
    rows = made(400)
    rows["never"] = np.where((rows["g"] == "a") & (np.arange(400) % 3 == 0), 1.0, 0.0)
    none = folded(plan_of(fa.Share("never", above=0.5)), rows).effects()[0]
    assert none.relative is None
    assert none.odds_ratio is None
    assert none.odds_ratio_why == none.relative_why == "An arm's share is zero, so there is no ratio to give."
    rows["always"] = 1 - rows["never"]
    all_of_one = folded(plan_of(fa.Share("always", above=0.5)), rows).effects()[0]
    assert all_of_one.relative is not None
    assert all_of_one.odds_ratio_why == "An arm's share is one, so there are no odds to give."


def test_shares_read_from_moments_have_the_ratios_of_sums() -> None:
    kept = folded(plan_of(fa.Share("views", above=3), moments={}), made(400)).effects().filter(estimator="difference")
    [sums, *others] = kept
    assert {row.se_kind for row in others} >= {"HC1", "HC2"}
    for row in others:
        assert row.odds_ratio == pytest.approx(sums.odds_ratio, rel=1e-9)
        assert row.relative == pytest.approx(sums.relative, rel=1e-9)
        if row.se_kind == "HC2":  # which is Welch's, and has the difference's degrees of freedom for ratios as well
            assert row.relative_std_error == pytest.approx(sums.relative_std_error, rel=1e-9)
            assert row.odds_ratio_ci_lower == pytest.approx(sums.odds_ratio_ci_lower, rel=1e-4)
            assert row.relative_ci_upper == pytest.approx(sums.relative_ci_upper, rel=1e-4)


def test_a_ratio_of_devices_sums_and_of_a_release_is_read_by_groups() -> None:
    plan = plan_of(fa.Ratio("clicks", "views"), federated="sums", expected_units=320)
    assert plan.pairs == ()
    bounds = {"clicks": (0.0, 40.0), "views": (0.0, 60.0)}
    released = plan_of(fa.Ratio("clicks", "views", bounds=bounds), unit="u", release=1.0, records_per_unit="one")
    assert released.pairs == ()
    rows = made(100_000, seed=2).assign(u=np.arange(100_000))
    row = folded(released, rows).end()[0]
    assert row.se_kind == "jackknife"
    assert abs(float(row.estimate or 9) - plain(rows)) < 8 * float(row.std_error or 0)


@pytest.mark.parametrize("unit", [None, "u"])
@pytest.mark.parametrize("sessions", ["many", "one"])
def test_a_small_arm_with_few_buyers_is_not_found_to_differ(unit: str | None, sessions: str) -> None:
    """By what the small arm has shown alone, more than a third of these trials without an effect found one."""
    plan = plan_of(fa.Ratio("revenue", "sessions"), arms={"a": 0.98, "b": 0.02}, unit=unit)
    rng, found = np.random.default_rng(5), 0
    for _ in range(40):
        n = 3_000
        rows = pd.DataFrame({"g": np.where(rng.random(n) < 0.02, "b", "a"), "u": np.arange(n)})
        rows["revenue"] = (rng.random(n) < 0.02) * rng.lognormal(size=n)
        rows["sessions"] = 1.0 + (rng.poisson(2, n) if sessions == "many" else 0)
        [verdict] = folded(plan, rows).effects().verdicts()
        found += verdict.verdict in ("higher", "lower")
    assert found <= 5
