"""A plan with moments keeps sums beside them: the very sums of the same plan without moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.errors import StateError
from foldaway.tallies import Lean, Rich
from plans import replaced

KEY = bytes(range(16))
BASE = fa.Plan(name="t", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", "w"])
STRATA = {"column": "site", "probabilities": {"n": {"a": 0.5, "b": 0.5}, "s": {"a": 0.2, "b": 0.8}}}
PLANS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"weight": "k"},
    "covariates": {"covariates": ["x"]},
    "units": {"unit": "who", "covariates": ["x", {"column": "kind", "levels": ["p", "q", "r"]}]},
    "strata": {"strata": STRATA},
    "strata with covariates": {"strata": STRATA, "covariates": ["x"]},
    "strata with weights and units": {"strata": STRATA, "covariates": ["x"], "weight": "k", "unit": "who"},
}


def plans(name: str, **more: Any) -> tuple[fa.Plan, fa.Plan]:
    """Without moments and with them; units come complete, which sums do not ask."""
    without = msgspec.structs.replace(BASE, **PLANS[name])
    complete = {"records_per_unit": "together"} if "unit" in PLANS[name] else {}
    return without, msgspec.structs.replace(without, moments={}, **complete | more)


def records(seed: int, units: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(units) + units * seed, rng.integers(1, 4, units))
    n = len(who)
    arm = np.array(["a", "b"])[who % 2]
    x = rng.normal(5, 2, n)
    return {
        "g": arm,
        "y": 3 + x + (arm == "b") + rng.normal(size=n),
        "w": rng.exponential(size=n),
        "x": x,
        "kind": np.array(["p", "q", "r"])[rng.integers(0, 3, n)],
        "k": rng.uniform(0.5, 2, n),
        "site": np.array(["n", "s"])[rng.integers(0, 2, n)],
        "who": who,
    }


def folded(plan: fa.Plan, *seeds: int) -> fa.Trial:
    trial = fa.Trial(plan, key=KEY)
    for seed in seeds:
        trial.fold(records(seed))
    return trial


def lean(trial: fa.Trial) -> Lean:
    tallies = trial.tallies
    assert isinstance(tallies, Lean)
    return tallies


def require_same(one: fa.Trial, two: fa.Trial) -> None:
    ours, theirs = lean(one), lean(two)
    pairs = [(ours.sums, theirs.sums)]
    if ours.strata is not None and theirs.strata is not None:
        pairs.append((ours.strata.plain(), theirs.strata.plain()))
    assert (ours.strata is None) == (theirs.strata is None)
    for left, right in pairs:
        for name, array in right.arrays().items():
            scale = np.abs(array).max(initial=0)
            np.testing.assert_allclose(left.arrays()[name], array, rtol=1e-11, atol=1e-11 * scale, err_msg=name)


@pytest.mark.parametrize("name", PLANS)
def test_the_sums_are_those_of_the_plan_without_moments(name: str) -> None:
    without, with_moments = (folded(plan, 1, 2) for plan in plans(name))
    assert isinstance(with_moments.tallies, Rich) == with_moments.unfixed == without.unfixed
    for trial in (without, with_moments):
        trial.fix()
        trial.fold(records(3))
    require_same(with_moments, without)


@pytest.mark.parametrize("name", PLANS)
def test_they_merge_and_come_back_together(name: str) -> None:
    _, plan = plans(name)
    parts = [fa.Trial.loads(folded(plan, seed).exchanged(), plan, key=KEY) for seed in (1, 2)]
    trial, whole = parts[0].merge(parts[1]), folded(plan, 1).merge(folded(plan, 2))
    trial.fix()
    whole.fix()
    again = fa.Trial.loads(trial.dumps(), plan)
    require_same(again, whole)
    ours, theirs = (lean(each).arms for each in (again, whole))
    assert ours is not None
    assert theirs is not None
    assert ours.counts == theirs.counts == lean(whole).counts
    assert again.effects().to_json() == trial.effects().to_json()


def test_weights_of_strata_are_none_of_the_moments() -> None:
    _, plan = plans("strata")
    trial = folded(plan, 1)
    arms = trial.tallies.arms
    assert arms is not None
    for arm in arms.by_arm:
        assert arm.raw_factor()[0, 0] ** 2 == pytest.approx(arm.n)  # Σ w is the number of records
    assert lean(trial).sums.all_weights.sum() > trial.n


def test_a_bootstrap_by_record_leaves_folds_in_turn() -> None:
    """Its keys are drawn anew for each batch; coefficients must not depend on them."""
    plan = replaced(plans("covariates")[1], bootstrap=8)
    ours, theirs = (folded(plan, 1, 2) for _ in range(2))
    assert isinstance(ours.tallies, Rich)
    assert isinstance(theirs.tallies, Rich)
    np.testing.assert_array_equal(ours.tallies.records, theirs.tallies.records)


def test_a_state_whose_parts_count_other_records_is_damaged() -> None:
    _, plan = plans("plain")
    trial, other = folded(plan, 1), folded(plan, 2, 3)
    trial.tallies = replace(lean(trial), arms=other.tallies.arms)
    with pytest.raises(StateError, match="counts do not fit"):
        fa.Trial.loads(trial.exchanged(), plan)
