"""Every replicate of every estimator is that of the rows kept, under the same weights."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import foldaway as fa
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.numerics.kernels.weights import Kind
from foldaway.paper import (
    bootstrap_least_squares,
    bootstrap_pate,
    cluster_bootstrap_least_squares,
    cluster_bootstrap_pate,
)
from foldaway.plan.reported import estimators_of
from foldaway.plan.vocabulary import ESTIMATORS, MOMENTS
from foldaway.records.check import hashes
from foldaway.tallies import arms_of
from foldaway.tallies.moments import Arms
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.kinds import REPLICATES
from kept_rows import design, fitted
from resampling import KEY, Weights, close, replicates_of, tallies_of, unit_weights, with_bootstrap
from trials import make_trial, trials
from written_weights import weights

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

B = 64
Hashes = NDArray[np.uint64]
KINDS: list[Kind] = ["poisson", "double-or-nothing"]


def folded(plan: fa.Plan, rows: pd.DataFrame, *cuts: int) -> fa.Trial:
    trial = fa.Trial(plan, key=KEY)
    for part in np.split(np.arange(len(rows)), cuts):
        trial.fold(rows.iloc[part])
    return trial


# The literal algorithms.


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[Hashes]:
    """The keyed numbers that records without a unit are given, in the order in which they are folded."""
    given: list[Hashes] = []

    def watched(units: object, *rest: Any) -> Hashes:
        given.append(hashes(units, *rest))
        return given[-1]

    monkeypatch.setattr(sys.modules[hashes.__module__], "hashes", watched)
    return given


def treated(rows: pd.DataFrame) -> Floats:
    return np.where(rows["group"] == "arm1", 1.0, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_by_record_the_replicates_are_those_of_algorithm_2(kind: Kind, numbers: list[Hashes]) -> None:
    plan, rows = make_trial(1, n=400, covariates=1, shift=20)
    trial = folded(with_bootstrap(plan, B, kind), rows, 150, 151)
    w = weights(np.concatenate(numbers), B, kind)
    literal = bootstrap_pate(rows["y0"], treated(rows), plan.arms["arm1"], w)
    assert close(replicates_of(trial, "horvitz_thompson", "arm1", "y0").effects, literal)


@pytest.mark.parametrize("kind", KINDS)
def test_by_unit_the_replicates_are_those_of_algorithm_4(kind: Kind) -> None:
    plan, rows = make_trial(2, n=400, covariates=1, units=True)
    plan = with_bootstrap(plan, B, kind)
    trial = folded(plan, rows)
    drawn = dict(zip(rows["unit"], unit_weights(plan, rows["unit"]), strict=True))
    literal = cluster_bootstrap_pate(rows["y0"], treated(rows), rows["unit"], plan.arms["arm1"], drawn.__getitem__)
    assert close(replicates_of(trial, "horvitz_thompson", "arm1", "y0").effects, literal)


def with_start(trial: fa.Trial, start: pd.DataFrame) -> fa.Trial:
    """The trial as Algorithm 3 begins it: every replicate has these records once."""
    began, arms = folded(trial.plan, start), []
    for number, arm in enumerate(arms_of(trial.tallies)):
        first = arms_of(began.tallies)[number].rebase(arm.frame)
        moments = first.factor.R.T @ first.factor.R
        k = arm.shape.regressors
        once = np.concatenate([moments[np.triu_indices(k)], moments[:k, k:].T.ravel()])
        tally = tallies_of(trial)[number]
        totals = tally.totals + once
        tallies = arm.tallies | {REPLICATES: type(tally)(tally.shape, tally.bootstrap, tally.n + first.n, totals)}
        arms.append(ArmTally(arm.shape, arm.kinds, arm.frame, arm.factor + first.factor, tallies))
    trial.tallies = Arms(trial.plan, tuple(arms))
    return trial


def features(rows: pd.DataFrame) -> Floats:
    return np.column_stack([np.ones(len(rows)), treated(rows), rows["x0"], rows["x1"]])


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_papers_start_the_replicates_are_those_of_algorithm_3(kind: Kind, numbers: list[Hashes]) -> None:
    plan, rows = make_trial(3, n=300, covariates=2)
    m = 30
    trial = folded(with_bootstrap(plan, B, kind), rows[m:], 100)
    w = weights(np.concatenate(numbers), B, kind)
    trial = with_start(trial, rows[:m])
    literal = bootstrap_least_squares(features(rows), rows["y0"].to_numpy(), w, start=m)
    assert close(replicates_of(trial, "regression", "arm1", "y0").effects, literal[:, 1])


def test_from_the_papers_start_and_by_unit_too() -> None:
    plan, rows = make_trial(4, n=300, covariates=2, units=True)
    rows = rows.sample(frac=1, random_state=1).reset_index(drop=True)  # units of the start come again later
    m = 30
    plan = with_bootstrap(plan, B, records_per_unit="many")
    trial = with_start(folded(plan, rows[m:]), rows[:m])
    drawn = dict(zip(rows["unit"], unit_weights(plan, rows["unit"]), strict=True))
    literal = cluster_bootstrap_least_squares(
        features(rows), rows["y0"].to_numpy(), rows["unit"], drawn.__getitem__, start=m
    )
    assert close(replicates_of(trial, "regression", "arm1", "y0").effects, literal[:, 1])


# The rows kept, with each record as often as its weight says.


def control_level(plan: fa.Plan, rows: pd.DataFrame, estimator: str, arm: str, outcome: str) -> float:
    """The control's outcome at the mean of all records' covariates."""
    w = rows[plan.weight].to_numpy()
    if estimator == "horvitz_thompson":
        scaled = (rows[plan.arm] == plan.control) * rows[outcome] / plan.arms[plan.control]
        return float(np.average(scaled, weights=w))
    y, X, _ = design(plan, rows, estimator, arm, outcome)
    _, _, fit = fitted(plan, rows, estimator, arm, outcome, "classical")
    at_mean = np.average(X, axis=0, weights=w)
    # No arm but the control; and the interacted regression has its covariates at mean zero.
    at_mean[1 : len(plan.arms) if estimator == "regression" else None] = 0
    return float(fit.params @ at_mean + rows[outcome].iloc[0] - y[0])


def comparisons(plan: fa.Plan) -> Iterator[tuple[str, str, str]]:
    from_moments = [name for name in estimators_of(plan) if MOMENTS in ESTIMATORS[name].sources]
    for estimator in (*from_moments, "horvitz_thompson"):
        for arm in list(plan.arms)[1:]:
            for outcome in plan.measured:
                yield estimator, arm, outcome


def check_against_kept_rows(plan: fa.Plan, rows: pd.DataFrame, trial: fa.Trial, w: Weights, some: list[int]) -> None:
    kept_plan = with_bootstrap(plan, B, weight="w")
    observed = rows["w"] if plan.weight else np.ones(len(rows))
    for estimator, arm, outcome in comparisons(plan):
        found = replicates_of(trial, estimator, arm, outcome)
        assert found.left_out == 0
        effects, levels = [], []
        for b in some:
            kept = rows.assign(w=observed * w[:, b])
            effects.append(fitted(kept_plan, kept, estimator, arm, outcome, "classical")[0])
            levels.append(control_level(kept_plan, kept, estimator, arm, outcome))
        spread = np.std(found.effects)
        assert np.allclose(found.effects[some], effects, rtol=1e-9, atol=1e-9 * spread), (estimator, arm, outcome)
        assert np.allclose(found.levels[some], levels, rtol=1e-9, atol=1e-9 * spread), (estimator, arm, outcome)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(trials(n=400, arms=2) | trials(n=500, arms=3), st.sampled_from(KINDS))
def test_every_estimator_of_every_replicate_is_that_of_the_kept_rows(
    drawn: tuple[fa.Plan, pd.DataFrame], kind: Kind
) -> None:
    plan, rows = drawn
    if plan.unit is None:  # by record under names of our own: the test must know the weights
        rows["unit"] = [f"record-{i}" for i in range(len(rows))]
    bootstrapped = with_bootstrap(plan, B, kind, unit="unit")
    cuts = () if plan.whole_units else (7, 200)
    trial = folded(bootstrapped, rows, *cuts)
    check_against_kept_rows(plan, rows, trial, unit_weights(bootstrapped, rows["unit"]), some=[0, 31, B - 1])


def test_of_records_without_a_unit_too(numbers: list[Hashes]) -> None:
    plan, rows = make_trial(6, n=400, arms=3, outcomes=2, covariates=1, levels=3, weighted=True)
    trial = folded(with_bootstrap(plan, B), rows, 100, 101, 300)
    check_against_kept_rows(plan, rows, trial, weights(np.concatenate(numbers), B, "poisson"), some=[0, 5])


# Replicates that have no estimate.


def rare_level(rare: int, n: int = 1200) -> tuple[fa.Plan, pd.DataFrame]:
    """Few records have the second level of the only covariate, all of them in the control."""
    rng = np.random.default_rng(7)
    group = rng.choice(["a", "b"], n)
    group[:rare] = "a"
    level = np.where(np.arange(n) < rare, "rare", "usual")
    rows = pd.DataFrame({"group": group, "kind": level, "unit": np.arange(n), "y": rng.normal(100, 1, n)})
    plan = fa.Plan(
        name="rare",
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        covariates=[{"column": "kind", "levels": ["usual", "rare"]}],
        unit="unit",
        moments=fa.Moments(estimators=["difference", "regression"], bootstrap=500),
    )
    return plan, rows


@pytest.mark.parametrize("cuts", [(), (600,), (1, 2, 3, 400), tuple(range(40, 1200, 40))], ids=len)
def test_replicates_without_a_rare_level_are_left_out_and_counted(cuts: tuple[int, ...]) -> None:
    plan, rows = rare_level(3)
    w = unit_weights(plan, rows["unit"])
    singular = w[:3].sum(axis=0) == 0
    assert 5 < singular.sum() < 100  # e⁻³ of them
    found = replicates_of(folded(plan, rows, *cuts), "regression", "b", "y")
    assert found.left_out == singular.sum()
    # With the level in the regression, the arms are compared over the usual records alone.
    usual, y = rows["kind"] == "usual", rows["y"].to_numpy()
    kept = [usual & (rows["group"] == arm) for arm in ("a", "b")]
    twelfth = w[:, np.flatnonzero(~singular)[11]]
    control, treatment = (np.average(y[of], weights=twelfth[of]) for of in kept)
    assert found.effects[11] == pytest.approx(treatment - control, rel=1e-9)
    row = folded(plan, rows, *cuts).effects().filter(estimator="regression", se_kind="bootstrap")[0]
    assert (row.replicates, row.replicates_left_out) == (500 - singular.sum(), singular.sum())
    assert row.std_error == pytest.approx(np.std(found.effects, ddof=1), rel=1e-12)


def test_the_difference_needs_both_arms_in_a_replicate() -> None:
    rows = pd.DataFrame({"group": ["a"] * 2 + ["b"] * 300, "unit": range(302)}).assign(y=lambda t: t["unit"] % 7)
    plan = fa.Plan(
        name="few",
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        unit="unit",
        moments=fa.Moments(bootstrap=300),
    )
    nobody = (unit_weights(plan, rows["unit"])[:2].sum(axis=0) == 0).sum()
    assert nobody > 10
    trial = folded(plan, rows)
    assert replicates_of(trial, "difference", "b", "y").left_out == nobody
    assert replicates_of(trial, "horvitz_thompson", "b", "y").left_out == 0


def test_a_covariate_without_direction_in_the_sample_costs_no_replicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Secret, "of_units", lambda *_: KEY)  # the same weights under both plans
    plan, rows = make_trial(8, n=300, covariates=1)
    twice = with_bootstrap(plan, B, covariates=("x0", "again"), unit="unit")
    once = with_bootstrap(plan, B, unit="unit")
    rows["again"] = 3 * rows["x0"] - 2
    for estimator in ("regression", "interacted"):
        found = replicates_of(folded(twice, rows), estimator, "arm1", "y0")
        assert found.left_out == 0
        assert close(found.effects, replicates_of(folded(once, rows), estimator, "arm1", "y0").effects)
