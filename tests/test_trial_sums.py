"""A trial that keeps sums: rich in memory, lean at the door, and the same however its records came."""

from __future__ import annotations

import functools
import math
import operator
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf

import foldaway as fa
from foldaway.errors import EndedError, EstimateError, PlanError, RecordError, StateError
from foldaway.keeping.user_keys import state_home
from foldaway.tallies import Lean
from foldaway.trial import units

PLAN = fa.Plan(
    name="checkout-button",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue", "bought"],
    covariates=["revenue_before", {"column": "country", "levels": ["de", "fr", "us"]}],
    unit="user_id",
)
KEY = bytes(range(16))


def make(seed: int, n: int = 4000, units: int = 700, share: float = 0.5) -> pd.DataFrame:
    """Records of units that are alike, scattered over the table."""
    rng = np.random.default_rng(seed)
    unit = rng.integers(0, units, n)
    treated = rng.random(units)[unit] < share
    before = rng.normal(12, 4, n)
    country = rng.choice(["de", "fr", "us"], n)
    mean = 1 + 0.8 * before + 1.5 * (country == "fr") + 0.3 * treated + rng.normal(size=units)[unit]
    revenue = mean + rng.normal(size=n)
    return pd.DataFrame(
        {
            "variant": np.where(treated, "treatment", "control"),
            "user_id": [f"u{number}" for number in unit],
            "revenue_before": before,
            "country": country,
            "revenue": revenue,
            "bought": (revenue > 12).astype(float),
        }
    )


def folded(plan: fa.Plan, *batches: pd.DataFrame, key: bytes | None = KEY) -> Any:  # a trial; rows have None
    trial = fa.Trial(plan, key=key if plan.keyed else None)
    for batch in batches:
        trial.fold(batch)
    return trial


def dealt(rows: pd.DataFrame, parts: int) -> list[pd.DataFrame]:
    return [rows[part::parts] for part in range(parts)]


def numbers(trial: fa.Trial) -> list[Any]:
    return [tuple(row.values())[5:] for row in trial.effects().to_dicts()]


def assert_same(one: fa.Trial, other: fa.Trial, rtol: float = 1e-9) -> None:
    for ours, theirs in zip(numbers(one), numbers(other), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a == b if not isinstance(a, float) else math.isclose(a, b, rel_tol=rtol, abs_tol=1e-12)


# Outside truths.


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_before_saving_adjusted_is_the_regression_on_kept_rows(share: float) -> None:
    """Where one arm is much the smaller, it counts most: the variance of the difference is smallest with n⁻²."""
    rows = make(1, share=share)
    sizes = rows.groupby("variant")["variant"].transform("size")
    weights = 1 / sizes**2 if share < 0.5 else np.ones(len(rows))
    effects = folded(PLAN, rows[:1500], rows[1500:]).effects()
    for outcome in PLAN.measured:
        fit = smf.wls(f"{outcome} ~ variant + revenue_before + country", rows, weights=weights).fit(
            cov_type="cluster", cov_kwds={"groups": rows["user_id"].astype("category").cat.codes}
        )
        row = effects.filter(outcome=outcome, estimator="adjusted", se_kind="jackknife")[0]
        assert math.isclose(row.estimate, fit.params.iloc[1], rel_tol=1e-12, abs_tol=1e-13)
        assert math.isclose(row.std_error, fit.bse.iloc[1], rel_tol=0.2)  # the jackknife's has a spread of 6 %
        plain = effects.filter(outcome=outcome, estimator="difference", se_kind="welch")[0]
        arms = [rows.loc[rows["variant"] == arm, outcome] for arm in ("treatment", "control")]
        assert math.isclose(plain.estimate, arms[0].mean() - arms[1].mean(), rel_tol=1e-12)
        assert math.isclose(plain.std_error, math.sqrt(sum(y.var() / len(y) for y in arms)), rel_tol=1e-12)


def test_the_mean_of_the_jackknife_over_keys_is_the_clustered_error() -> None:
    rows = make(2)
    fit = smf.ols("revenue ~ variant", rows).fit(
        cov_type="cluster", cov_kwds={"groups": rows["user_id"].astype("category").cat.codes}
    )
    plan = fa.Plan(name="p", arm="variant", arms=PLAN.arms, outcomes=["revenue"], unit="user_id")
    errors = [
        folded(plan, rows, key=seed.to_bytes(16, "big")).effects().filter(se_kind="jackknife")[0].std_error
        for seed in range(100)
    ]
    assert math.isclose(math.sqrt(np.mean(np.square(errors))), fit.bse.iloc[1], rel_tol=0.02)


# Laws.


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("unit", ["user_id", None])
def test_batching_sharding_and_merging_change_nothing(unit: str | None, calibrated: bool) -> None:
    rows = make(3)
    plan = fa.Plan(**{**_settings(PLAN), "unit": unit})
    plan = plan.calibrated(make(30)) if calibrated else plan
    whole = folded(plan, rows)
    shuffled = rows.sample(frac=1, random_state=1)
    assert_same(folded(plan, *dealt(shuffled, 7)), whole)
    shards = [folded(plan, part) for part in dealt(shuffled, 4)]
    assert_same(functools.reduce(operator.add, shards), whole)
    back = [fa.Trial.loads(shard.exchanged(), key=KEY if plan.keyed else None) for shard in shards]
    assert_same(functools.reduce(operator.add, back), whole)


def test_a_saved_state_says_what_the_saving_trial_says_and_goes_on(tmp_path: Path) -> None:
    rows = make(4)
    trial = folded(PLAN, rows[:2000])
    rich = trial.effects().filter(estimator="adjusted", se_kind="jackknife")
    trial.save(tmp_path / "state")
    back: Any = fa.Trial.load(tmp_path / "state", key=KEY)
    assert back.effects().to_json() == trial.effects().to_json()
    lean = trial.effects().filter(estimator="adjusted", se_kind="jackknife")
    for before, after in zip(rich, lean, strict=True):
        assert abs(before.estimate - after.estimate) < 0.1 * before.std_error
    back.fold(rows[2000:])
    trial.fold(rows[2000:])
    assert_same(back, trial)
    full = folded(PLAN, rows).effects().filter(estimator="adjusted", se_kind="jackknife")
    for fixed, pooled in zip(back.effects().filter(estimator="adjusted", se_kind="jackknife"), full, strict=True):
        assert abs(fixed.estimate - pooled.estimate) < 0.5 * pooled.std_error
        assert fixed.std_error < 1.05 * pooled.std_error


def test_a_report_fixes_nothing() -> None:
    trial = folded(PLAN, make(5))
    before = trial.exchanged()
    assert "No record was kept." in trial.report().html
    assert trial.exchanged() == before
    assert trial.unfixed


def test_a_state_is_small_and_holds_no_covariate_and_no_moment() -> None:
    plan = fa.Plan(**{**_settings(PLAN), "outcomes": ["revenue"]})
    trial = folded(plan, make(6))
    trial.fix()
    assert len(trial.dumps()) < 8000
    tallies = trial.tallies
    assert isinstance(tallies, Lean)
    assert tallies.predictor is not None
    for slope in tallies.predictor.slopes.ravel():
        assert float(f"{slope:.3g}") == slope


def test_adding_records_to_a_saved_state_uses_its_coefficients() -> None:
    rows = make(7)
    saved = folded(PLAN, rows[:2000])
    saved.fix()
    later = folded(PLAN, rows[2000:])
    together, apart = saved + later, folded(PLAN, rows[:2000])
    apart.fix()
    apart.fold(rows[2000:])
    assert_same(together, apart)
    assert_same(later + saved, apart)


def known_digest(trial: fa.Trial) -> str:
    assert isinstance(trial.tallies, Lean)
    assert trial.tallies.predictor is not None
    return trial.tallies.predictor.digest[:12]


def known_why(trial: fa.Trial) -> str:
    assert isinstance(trial.tallies, Lean)
    return trial.tallies.why


def test_states_with_different_coefficients_keep_the_difference_and_withhold_the_rest() -> None:
    rows = make(8)
    shards = [folded(PLAN, rows[:2000]), folded(PLAN, rows[2000:]), folded(PLAN, rows[1000:2500])]
    for shard in shards:
        shard.fix()
    merged = shards[0] + shards[1]
    digests = sorted(known_digest(shard) for shard in shards[:2])
    for again in (merged, merged + shards[2]):  # what differed first stays the reason
        assert f"(digests {' and '.join(digests)})" in known_why(again)
    assert digests[0] != digests[1]
    assert known_digest(shards[0]) == known_digest(fa.Trial.loads(shards[0].dumps()))
    assert f"digest {known_digest(shards[0])}" in shards[0].report().html
    back: Any = fa.Trial.loads(merged.dumps())
    whole = folded(PLAN, rows).effects()
    for effects in (merged.effects(), back.effects()):
        for row in effects.filter(estimator="adjusted"):
            assert row.estimate is None
            assert not row.reliable
            assert "plan calibrate" in row.why
        for row, expected in zip(
            effects.filter(estimator="difference"), whole.filter(estimator="difference"), strict=True
        ):
            assert math.isclose(row.estimate, expected.estimate, rel_tol=1e-9)
            assert math.isclose(row.std_error, expected.std_error, rel_tol=1e-9)
    calibrated = PLAN.calibrated(make(80))
    parts = [folded(calibrated, rows[:2000]), folded(calibrated, rows[2000:])]
    for part in parts:
        part.fix()
    assert all(row.reliable for row in (parts[0] + parts[1]).effects())


# What is withheld.


def test_few_records_have_a_reason_and_no_number() -> None:
    effects = folded(PLAN, make(9, n=12, units=6)).effects()
    for row in effects:
        assert row.reliable is (row.why is None)
        assert row.reliable is (row.std_error is not None and row.ci_lower is not None)
    adjusted = effects.filter(estimator="adjusted")
    assert all("covariates takes 15 records" in row.why for row in adjusted)
    assert all(row.estimate is None for row in adjusted)
    assert all("groups" in row.why for row in effects.filter(estimator="difference", se_kind="jackknife"))


def test_no_number_is_nan_and_json_comes_back() -> None:
    constant = make(10).assign(bought=1.0)
    for trial in (folded(PLAN, make(10)), folded(PLAN, make(10)[:3]), folded(PLAN, constant), fa.Trial(PLAN)):
        effects = trial.effects()
        assert not any(isinstance(x, float) and math.isnan(x) for row in effects.to_dicts() for x in row.values())
        assert fa.Effects.from_json(effects.to_json()).to_json() == effects.to_json()
    for row in folded(PLAN, constant).effects().filter(outcome="bought"):
        assert not row.reliable
        assert "same value" in row.why


def test_a_relative_effect_on_a_control_near_zero_is_withheld() -> None:
    rows = make(11)
    rows["revenue"] -= rows.loc[rows["variant"] == "control", "revenue"].mean()
    for row in folded(PLAN, rows).effects().filter(outcome="revenue", estimator="difference"):
        assert row.reliable
        assert row.relative is None
        assert "zero" in row.relative_why


# Keys.


def test_trials_of_one_user_merge_and_resume_with_no_key_mentioned(tmp_path: Path) -> None:
    rows, plan = make(12), fa.Plan(**{**_settings(PLAN), "name": "no-ceremony"})
    one, two = folded(plan, rows[:2000], key=None), folded(plan, rows[2000:], key=None)
    assert_same(one + two, folded(plan, rows, key=None))
    one.save(tmp_path / "state")
    back = fa.Trial.load(tmp_path / "state")
    back.fold(rows[2000:])
    key = state_home() / "keys" / f"{plan.design[:32]}.key"
    assert oct(key.stat().st_mode & 0o777) == "0o600"
    back.end(without_effects=True)
    assert not key.exists()
    with pytest.raises(EndedError, match="does not have it"):
        fa.Trial.loads(one.dumps()).fold(rows)
    assert fa.Trial.loads(one.dumps()).effects()
    with pytest.raises(StateError, match="does not have"):
        fa.Trial.load(tmp_path / "state")


def test_reading_a_state_makes_no_key() -> None:
    plan = fa.Plan(**{**_settings(PLAN), "name": "only-read"})
    data = folded(plan, make(13)).dumps()
    fa.Trial.loads(data).effects()
    fa.Trial(plan).effects()
    assert not (state_home() / "keys" / f"{plan.design[:32]}.key").exists()


def test_trials_under_different_keys_do_not_merge() -> None:
    rows = make(14)
    with pytest.raises(StateError, match="different keys"):
        folded(PLAN, rows) + folded(PLAN, rows, key=bytes(16))


def test_records_that_are_one_per_unit_need_no_groups_and_no_key() -> None:
    plan = fa.Plan(**{**_settings(PLAN), "records_per_unit": "one"})
    assert not plan.keyed
    effects = folded(plan, make(15).drop_duplicates("user_id")).effects()
    assert {row.se_kind for row in effects} == {"welch"}
    assert len(folded(plan, make(15)).dumps()) < 2000
    with pytest.raises(PlanError, match="needs `unit`"):
        fa.Plan(**{**_settings(PLAN), "unit": None, "records_per_unit": "one"})


# The sample ratio.


def test_an_arm_with_more_records_per_unit_raises_an_alarm_that_says_so() -> None:
    rows = make(16, n=6000, units=2000)
    assert folded(PLAN, rows).effects().sample_ratio.ok
    more = pd.concat([rows, rows[rows["variant"] == "treatment"]])
    with pytest.warns(fa.SampleRatioWarning, match="changes how many records a unit has"):
        ratio = folded(PLAN, more).effects().sample_ratio
    assert (ratio.state, ratio.test) == ("look", "groups")


# Calibration.


def test_coefficients_re_randomise_nobody_and_need_enough_records() -> None:
    before = make(17)[["revenue_before", "country", "revenue", "bought"]]
    plan = PLAN.calibrated(before)
    segmented = {"segments": [{"column": "tier", "levels": ["a", "b"]}]}  # not in earlier records
    assert fa.Plan(**{**_settings(PLAN), **segmented}).calibrated(before).coefficients == plan.coefficients
    assert plan.design == PLAN.design
    assert plan.fingerprint != PLAN.fingerprint
    assert [plan.assign(i) for i in range(50)] == [PLAN.assign(i) for i in range(50)]
    assert fa.Plan.loads(plan.to_toml()) == plan
    assert not folded(plan, make(18)).unfixed
    with pytest.raises(EstimateError, match="from 2,000 records on"):
        PLAN.calibrated(make(17, n=1999))
    with pytest.raises(PlanError, match="a number for each of revenue_before"):
        fa.Plan(**{**_settings(PLAN), "coefficients": {"center": {}, "slopes": {"revenue": {}, "bought": {}}}})
    with pytest.raises(PlanError, match="needs none"):
        fa.Plan(**{**_settings(PLAN), "covariates": []}).calibrated(make(17))


def test_covariates_that_only_tell_the_arm_adjust_nothing() -> None:
    plan = fa.Plan(name="p", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x", "z"])
    trial, i = fa.Trial(plan), np.arange(400)
    trial.fold({"g": np.where(i % 2, "a", "b"), "x": 3.0 + i % 2, "z": i % 2, "y": i % 7})
    plain, adjusted = (trial.effects().filter(estimator=name)[0] for name in ("difference", "adjusted"))
    assert adjusted.estimate == pytest.approx(plain.estimate, abs=1e-12)
    assert "not adjusted for “x” and “z”" in str(trial.effects())


def test_stale_coefficients_cost_no_width() -> None:
    rows = make(19, n=8000)
    good = PLAN.calibrated(make(190))
    assert good.coefficients is not None
    wrong = {
        outcome: {column: -slope for column, slope in slopes.items()}
        for outcome, slopes in good.coefficients.slopes.items()
    }
    stale = fa.Plan(**{**_settings(good), "coefficients": {"center": good.coefficients.center, "slopes": wrong}})
    for row, expected in zip(folded(stale, rows).effects(), folded(good, rows).effects(), strict=True):
        assert row.std_error < 1.02 * expected.std_error


def _settings(plan: fa.Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__struct_fields__}


# Totals.


def test_a_total_is_the_sum_over_the_probability_and_covers_where_a_mean_misleads() -> None:
    """The treatment doubles the visits and leaves revenue per unit as it is: half the mean, the same total."""
    plan = fa.Plan(
        name="total",
        arm="g",
        arms={"a": 0.3, "b": 0.7},
        outcomes=["v", fa.Total("r", assigned_units=900)],
        unit="u",
    )
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        treated = rng.random(900) < 0.7
        visits = np.where(treated, 4, 2)
        unit = np.repeat(np.arange(900), visits)
        spend = rng.gamma(2, 5, 900)
        rows = pd.DataFrame({"g": np.where(treated, "b", "a")[unit], "u": unit, "v": 1.0, "r": (spend / visits)[unit]})
        trial = folded(plan, rows)
        with pytest.warns(fa.SampleRatioWarning):
            [row] = trial.effects().filter(outcome="total r", se_kind="jackknife")
        sums = rows.groupby("g")["r"].sum()
        assert row.estimator == "total"
        assert row.estimate == pytest.approx((sums["b"] / 0.7 - sums["a"] / 0.3) / 900, rel=1e-9)
        assert row.control_level == pytest.approx(sums["a"] / 0.3 / 900, rel=1e-9)
        assert row.anytime_ci_lower is None
        covered += row.ci_lower <= 0 <= row.ci_upper
    assert covered >= 53  # of 60, at 95 %: fewer in one of a hundred runs


def test_without_several_records_of_a_unit_a_total_is_the_papers_estimate() -> None:
    rows = make(20).drop_duplicates("user_id")
    settings = {"covariates": [], "records_per_unit": "one"}
    plan = fa.Plan(**{**_settings(PLAN), **settings, "outcomes": [fa.Total("revenue", assigned_units=len(rows))]})
    [row] = folded(plan, rows).effects()
    z = rows["revenue"] * np.where(rows["variant"] == "treatment", 2.0, -2.0)
    assert row.estimate == pytest.approx(z.mean(), rel=1e-9)
    assert row.std_error == pytest.approx(z.std() / math.sqrt(len(z)), rel=1e-9)
    assert fa.Plan.loads(plan.to_toml()) == plan
    with pytest.raises(PlanError, match="read from sums"):
        fa.Plan(**{**_settings(PLAN), "outcomes": [fa.Total("revenue")], "moments": {}})


# Other arms, and the edges of what can be told.


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("unit", ["user_id", None])
def test_an_arm_of_few_records_takes_nothing_from_the_others(unit: str | None, saved: bool, others: int) -> None:
    settings = {**_settings(PLAN), "unit": unit, "arms": {"control": 0.4, "treatment": 0.4, "third": 0.2}}
    rows = make(21)
    with_third = pd.concat([rows, rows[:others].assign(variant="third")])
    trial = folded(fa.Plan(**settings), with_third)
    if saved:
        trial.fix()
    with pytest.warns(fa.SampleRatioWarning):
        effects = trial.effects()
    for row in effects:
        assert row.reliable is (row.arm == "treatment"), row
        if row.reliable:
            assert math.isfinite(row.estimate)
            assert math.isfinite(row.std_error)


def test_relative_effects_of_adjusted_cover() -> None:
    """The level itself varies with the covariates' mean, which a conditional error would leave out."""
    plan = fa.Plan(name="r", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"])
    covered = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        x, b = rng.normal(size=400), rng.random(400) < 0.5
        trial = folded(plan, pd.DataFrame({"g": np.where(b, "b", "a"), "x": x, "y": 10 + 10 * b + 3 * x}))
        trial.fold(pd.DataFrame({"g": ["a", "b"], "x": [0.0, 0.0], "y": [9.0, 21.0]}))
        row = trial.effects().filter(estimator="adjusted")[0]
        covered += row.relative_ci_lower <= 1 <= row.relative_ci_upper
    assert covered >= 109  # of 120, at 95 %


def test_the_covariates_narrow_the_any_time_interval_too() -> None:
    rng = np.random.default_rng(5)
    n = 4000
    x, b = rng.normal(0, 10, n), rng.random(n) < 0.5
    rows = pd.DataFrame(
        {"g": np.where(b, "b", "a"), "u": np.arange(n), "x": x, "y": 20 + x + 0.5 * b + rng.normal(size=n)}
    )
    plan = fa.Plan(name="n", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"], unit="u")
    trial = folded(plan, rows)
    for _ in ("in memory", "saved"):
        for kind in ("welch", "jackknife"):
            [row] = trial.effects().filter(estimator="adjusted", se_kind=kind)
            assert (row.anytime_ci_upper - row.estimate) / row.std_error < 4
        trial.fix()


def test_an_any_time_interval_without_bounds_is_withheld() -> None:
    plan = fa.Plan(**{**_settings(PLAN), "expected_units": 10**9})
    for row in folded(plan, make(22, n=400, units=200)).effects().filter(se_kind="jackknife"):
        assert row.anytime_ci_lower is None
        assert "infinity" in row.anytime_why


def test_a_level_of_few_people_gets_no_coefficient_that_is_told() -> None:
    rows = make(23)
    rows.loc[rows["country"] == "us", "country"] = "de"
    rows.loc[rows.index[:3], ["country", "revenue"]] = "us", 87_321.0
    plan = PLAN.calibrated(rows)
    assert plan.coefficients is not None
    assert plan.coefficients.slopes["revenue"]["country[us]"] == 0
    trial = folded(PLAN, rows)
    trial.fix()
    assert trial.tallies.predictor.slopes[0][2] == 0


def test_an_outcome_with_a_total_has_its_row() -> None:
    settings = {**_settings(PLAN), "covariates": []}
    outcomes = [fa.Total("revenue"), "visits"]
    for estimators in (["difference"], ["total"]):
        with pytest.raises(PlanError, match=r"`moments\.estimators` has none that fits"):
            fa.Plan(**{**settings, "outcomes": outcomes, "moments": {"estimators": estimators}})


def test_coefficients_are_fixed_by_a_step_of_its_own_which_saving_takes_and_mentions_once(tmp_path: Path) -> None:
    trial = folded(PLAN, make(6))
    trial.dumps()
    assert trial.unfixed
    with pytest.warns(fa.FixedWarning, match=f"from {trial.n:,} records; .*trial.fix"):
        trial.save(tmp_path / "state")
    assert not trial.unfixed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trial.save(tmp_path / "state")
    fixed, tallies = folded(PLAN, make(6)), trial.tallies
    fixed.fix()
    assert isinstance(fixed.tallies, Lean)
    trial.fix()
    assert trial.tallies is tallies


@pytest.mark.parametrize("fixed", [False, True])
def test_a_large_table_is_folded_slice_by_slice_as_if_whole(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make(1)
    first, rest = rows[:1000], rows[1000:]
    whole, sliced = folded(PLAN, first), folded(PLAN, first)
    if fixed:
        whole.fix(), sliced.fix()
    whole.fold(rest)
    monkeypatch.setattr(units, "SLICE", 256)
    sliced.fold(pa.Table.from_pandas(rest))
    assert_same(whole, sliced)
    assert (sliced.n, sliced.secret.mark) == (whole.n, whole.secret.mark)
    assert sliced.newcomers.distinct >= PLAN.privacy.cohort
    # What is wrong is counted over the whole table, and nothing of it is taken in.
    faulty, before = rest.assign(revenue=rest["revenue"].mask(np.arange(len(rest)) % 500 == 0)), sliced.dumps()
    with pytest.raises(RecordError) as told:
        whole.fold(faulty)
    with pytest.raises(RecordError) as told_of_slices:
        sliced.fold(pa.Table.from_pandas(faulty))
    assert str(told_of_slices.value) == str(told.value)
    assert sliced.dumps() == before
