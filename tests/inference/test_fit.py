"""Fits without full rank, and with next to no records, as statsmodels' pseudoinverse has them."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

import foldaway as fa
from foldaway.effects import Effect
from foldaway.inference.fit import directions
from kept_rows import cr1_of_means, design, weights_of
from plans import listing
from sizes import mostly_slow
from trials import folded, from_moments, known

pytestmark = [
    pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning"),
    pytest.mark.filterwarnings("ignore:The design matrix is rank-deficient"),  # statsmodels, on the kept rows
]


def make_rows(seed: int, n: int = 240, arms: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(5, 2, n)
    arm = np.arange(n) % arms
    rows = pd.DataFrame({"g": [f"arm{a}" for a in arm], "x": x, "z": rng.normal(size=n), "w": rng.uniform(0.5, 2, n)})
    rows["kind"] = rng.choice(["l0", "l1", "l2"], n)
    rows["u"] = np.arange(n) // (2 * arms) * arms + arm  # units of two records of one arm
    rows["y"] = 3 + x + (1 + 0.5 * arm) * rows["z"] + arm + rng.normal(size=n) * (1 + arm)
    return rows


def make_plan(rows: pd.DataFrame, covariates: list[str], **settings: Any) -> fa.Plan:
    arms = sorted(set(rows["g"]) | {"arm0", "arm1"})
    levels = {"kind": ["l0", "l1", "l2", "l3"]}
    shares = {arm: 1 / len(arms) for arm in arms}
    return fa.Plan(
        name="rank",
        arm="g",
        arms=shares,
        moments=fa.Moments(),
        outcomes=["y"],
        covariates=listing(covariates, levels),
        **settings,
    )


def pseudoinverse(plan: fa.Plan, rows: pd.DataFrame, effect: Effect) -> tuple[float, float, Any]:
    """Estimate, error and fit by statsmodels with the smallest coefficients of all that fit."""
    y, X, position = design(plan, rows, effect.estimator, effect.arm, effect.outcome)
    model = sm.WLS(y, X, weights=weights_of(plan, rows, effect.estimator))
    if effect.se_kind == "classical":
        fit = model.fit(method="pinv")
    elif effect.se_kind.startswith("HC"):
        fit = model.fit(method="pinv", cov_type=effect.se_kind)
    else:
        keywords = {"groups": pd.factorize(rows[plan.unit])[0], "use_correction": False}
        fit = model.fit(method="pinv", cov_type="cluster", cov_kwds=keywords)
    error = float(fit.bse[position])
    if effect.se_kind == "CR1" and effect.estimator in ("difference", "ipw"):
        return float(fit.params[position]), cr1_of_means(plan, rows, effect.arm, effect.outcome), fit
    if effect.se_kind == "CR1":  # by hand, for statsmodels' correction counts columns where Stata's counts the rank
        n, units = len(rows), rows[plan.unit].nunique()
        error *= np.sqrt(units / (units - 1) * (n - 1) / fit.df_resid)
    return float(fit.params[position]), error, fit


def assert_as_pseudoinverse(plan: fa.Plan, rows: pd.DataFrame, effects: fa.Effects, rank: dict[str, int]) -> None:
    for effect in effects:
        if effect.se_kind == "HC2" or effect.estimate is None:
            continue
        estimate, error, fit = pseudoinverse(plan, rows, effect)
        assert effect.std_error == pytest.approx(error, rel=1e-8), (effect.estimator, effect.se_kind)
        assert effect.estimate == pytest.approx(estimate, rel=1e-8, abs=1e-8 * error), effect.estimator
        if effect.se_kind in ("classical", "HC0", "HC1"):
            assert effect.df == fit.df_resid
            if effect.estimator in rank:
                assert effect.df == len(rows) - rank[effect.estimator]


def never_seen(rows: pd.DataFrame) -> tuple[list[str], int]:
    return ["x", "kind"], 3  # l3 is declared and never seen


def doubled(rows: pd.DataFrame) -> tuple[list[str], int]:
    rows["again"] = rows["x"]
    return ["x", "again", "z"], 2


def in_other_units(rows: pd.DataFrame) -> tuple[list[str], int]:
    rows["celsius"] = (rows["x"] - 32) / 1.8
    return ["x", "z", "celsius"], 2


def constant(rows: pd.DataFrame) -> tuple[list[str], int]:
    rows["level"] = 7.25
    return ["level", "x"], 1


def zero(rows: pd.DataFrame) -> tuple[list[str], int]:
    rows["nothing"] = 0.0
    return ["x", "nothing"], 1


def a_sum(rows: pd.DataFrame) -> tuple[list[str], int]:
    rows["sum"] = 2 * rows["x"] - 3 * rows["z"]
    return ["x", "z", "sum"], 2


def only_constants(rows: pd.DataFrame) -> tuple[list[str], int]:
    rows["one"], rows["two"] = 1.0, 2.0
    return ["one", "two"], 0


COLLINEAR = [never_seen, doubled, in_other_units, constant, zero, a_sum, only_constants]


@pytest.mark.parametrize("make", COLLINEAR, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("arms", "weighted"), mostly_slow(product([2, 3], [False, True]), (2, False), (3, True)))
def test_collinear_covariates_give_the_effects_of_the_pseudoinverse(make: Any, arms: int, weighted: bool) -> None:
    rows = make_rows(1, arms=arms)
    covariates, slopes = make(rows)
    plan = make_plan(rows, covariates, weight="w" if weighted else None, unit="u", records_per_unit="together")
    effects = from_moments(folded(plan, rows).effects(population=False))
    assert {effect.estimator for effect in effects} == {"ipw", "difference", "regression", "interacted"}
    [note] = effects.notes
    assert note.startswith("The effects are not adjusted for “")
    assert_as_pseudoinverse(plan, rows, effects, {"regression": arms + slopes, "interacted": arms * (1 + slopes)})


@pytest.mark.parametrize("make", COLLINEAR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("step", mostly_slow([1, 7, 60], 7))
def test_the_rank_does_not_depend_on_the_batches(make: Any, step: int) -> None:
    rows = make_rows(2)
    plan = make_plan(rows, make(rows)[0])
    whole, batches = folded(plan, rows).effects(), folded(plan, rows, *range(step, len(rows), step)).effects()
    assert len(whole) == len(batches)
    for one, other in zip(batches, whole, strict=True):
        assert one.df == pytest.approx(other.df, rel=1e-9)
        assert one.std_error == pytest.approx(other.std_error, rel=1e-9)
        assert one.estimate == pytest.approx(other.estimate, rel=1e-9, abs=1e-9 * known(other.std_error))


@pytest.mark.parametrize("arm", ["arm0", "arm1"])
@pytest.mark.parametrize("way", ["constant", "zero", "doubled"])
def test_collinear_within_one_arm_withholds_the_interacted_effect_alone(arm: str, way: str) -> None:
    rows = make_rows(3)
    mine = rows["g"] == arm
    replaced: Any = {"constant": 4.0, "zero": 0.0, "doubled": rows["x"]}[way]
    rows["z"] = rows["z"].where(~mine, replaced)
    plan = make_plan(rows, ["x", "z"])
    effects = from_moments(folded(plan, rows).effects(population=False))
    assert {effect.estimator for effect in effects if effect.reliable} == {"ipw", "difference", "regression"}
    for effect in effects.filter(estimator="interacted"):
        assert effect.estimate is None
        assert effect.why == "The covariates are collinear within an arm, so the effect is not identified."
    assert_as_pseudoinverse(plan, rows, effects, {"regression": 4})


def test_a_level_that_one_arm_has_not_seen() -> None:
    rows = make_rows(4)
    rows.loc[rows["g"] == "arm1", "kind"] = "l0"
    plan = make_plan(rows, ["x", "kind"])
    effects = from_moments(folded(plan, rows).effects(population=False))
    assert {effect.estimate for effect in effects.filter(estimator="interacted")} == {None}
    assert_as_pseudoinverse(plan, rows, effects, {"regression": 5})


# Next to nothing.


@pytest.mark.parametrize("arms", [2, 3])
def test_a_trial_without_records_says_so(arms: int) -> None:
    rows = make_rows(5, n=6, arms=arms)
    plan = make_plan(rows, ["x"])
    effects = from_moments(fa.Trial(plan).effects(population=False))
    assert {(effect.estimator, effect.arm) for effect in effects} == {
        (name, f"arm{arm}") for name in ("ipw", "difference", "regression", "interacted") for arm in range(1, arms)
    }
    assert {(effect.estimate, effect.why) for effect in effects} == {(None, "An arm has no records yet.")}
    assert effects.sample_ratio.p_value == 1
    assert str(effects)


@pytest.mark.parametrize("empty", ["arm0", "arm1"])
def test_an_arm_without_records_withholds_what_needs_it(empty: str) -> None:
    rows = make_rows(6, n=40)
    plan = make_plan(rows, ["x"])
    effects = from_moments(folded(plan, rows[rows["g"] != empty]).effects(population=False))
    assert {(effect.estimate, effect.why) for effect in effects} == {(None, "An arm has no records yet.")}
    assert effects.counts[empty] == 0


def test_a_third_arm_without_records_does_not_hold_up_the_others() -> None:
    rows = make_rows(7, n=60, arms=2)
    plan = fa.Plan(
        name="staged",
        arm="g",
        arms={"arm0": 0.4, "arm1": 0.4, "arm2": 0.2},
        moments=fa.Moments(),
        outcomes=["y"],
        covariates=["x"],
    )
    effects = from_moments(folded(plan, rows).effects(population=False))
    row = effects.filter(arm="arm1", estimator="difference", se_kind="HC2")[0]
    means = rows.groupby("g")["y"].mean()
    assert row.estimate == pytest.approx(means["arm1"] - means["arm0"], rel=1e-12)
    assert {effect.why for effect in effects.filter(arm="arm2")} == {"An arm has no records yet."}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-2, 2), st.integers(-3, 3)), max_size=7), st.booleans())
def test_a_few_records_give_what_they_can_and_reasons_for_the_rest(
    records: list[tuple[int, int, int]], one: bool
) -> None:
    rows = pd.DataFrame(records, columns=["arm", "x", "y"])
    rows["g"] = [f"arm{a}" for a in rows["arm"]]
    plan = make_plan(rows, ["x"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        trial = folded(plan, rows.to_dict("records"), *(range(1, len(rows)) if one else ()))
        effects = from_moments(trial.effects(population=False))
    assert {effect.estimator for effect in effects} == {"ipw", "difference", "regression", "interacted"}
    for effect in effects:
        # Either the error, or the reason why there is none; not both, not neither.
        assert effect.reliable is (effect.std_error is not None) is (effect.why is None)
        if effect.se_kind == "HC2" or not effect.reliable:
            continue
        assert known(effect.df) >= 1
        assert known(effect.std_error) >= 0
        estimate, error, fit = pseudoinverse(plan, rows, effect)
        assert effect.estimate == pytest.approx(estimate, rel=1e-9, abs=1e-9)
        assert effect.df == fit.df_resid
        # An exact fit leaves a variance of rounding, of which the root is far from zero.
        assert effect.std_error == pytest.approx(error, rel=1e-6, abs=1e-7)


# Directions.


def test_directions_are_the_first_columns_that_span() -> None:
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(3, 30))
    columns = np.column_stack([a, 2 * a, np.zeros(30), b, a - b, c, 1e-12 * rng.normal(size=30)])
    assert directions(columns, np.full(7, 1e-10)) == [0, 3, 5]
    assert directions(np.zeros((4, 3)), np.zeros(3)) == []
    assert directions(np.empty((4, 0)), np.empty(0)) == []


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 6))
def test_their_number_is_the_rank(seed: int, independent: int, dependent: int) -> None:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(20, independent))
    columns = np.column_stack([base, base @ rng.normal(size=(independent, dependent))])
    columns = columns[:, rng.permutation(columns.shape[1])]
    kept = directions(columns, 1e-10 * np.linalg.norm(columns, axis=0))
    assert len(kept) == np.linalg.matrix_rank(columns) == independent
    assert np.linalg.matrix_rank(columns[:, kept]) == independent
