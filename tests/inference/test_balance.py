"""Covariate balance, beside the same from the kept rows."""

from __future__ import annotations

import math
from zlib import crc32

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import foldaway as fa
from foldaway.inference.balance import Balance, balance
from foldaway.tallies import arms_of
from fuzzing import fuzz
from kept_rows import fitted
from plans import replaced
from sizes import simulated
from trials import crowded, folded, make_trial, trials


def kept(plan: fa.Plan, rows: pd.DataFrame, covariate: str, arm: str) -> tuple[float, float, float]:
    """Mean in the arm and in the control, and the standardised difference, from all rows."""
    name, _, level = covariate.partition("[")
    values = (rows[name] == level[:-1]).astype(float) if level else rows[name].astype(float)
    means, variances = [], []
    for each in (arm, plan.control):
        there = rows[plan.arm] == each
        x, w = values[there], rows["w"][there] if plan.weight else np.ones(there.sum())
        mean = np.average(x, weights=w)
        means.append(float(mean))
        variances.append(np.average((x - mean) ** 2, weights=w) * len(x) / (len(x) - 1))
    return means[0], means[1], (means[0] - means[1]) / math.sqrt(sum(variances) / 2)


@fuzz(max_examples=30)
@given(trials())
def test_balance_is_that_of_the_kept_rows(drawn: tuple[fa.Plan, pd.DataFrame]) -> None:
    plan, rows = drawn
    found = balance(plan, arms_of(folded(plan, rows, len(rows) // 3).tallies))
    numeric = [name for name in plan.covariates if name not in plan.levels]
    levels = [f"{name}[{level}]" for name, listed in plan.levels.items() for level in listed]
    assert [(each.covariate, each.arm) for each in found] == [
        (covariate, arm) for covariate in [*numeric, *levels] for arm in list(plan.arms)[1:]
    ]
    for each in found:
        mean, control_mean, difference = kept(plan, rows, each.covariate, each.arm)
        assert each.mean == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert each.control_mean == pytest.approx(control_mean, rel=1e-9, abs=1e-9)
        assert each.difference == pytest.approx(difference, rel=1e-7, abs=1e-9)


def test_unweighted_variance_is_the_usual_one() -> None:
    plan, rows = make_trial(3, n=50)
    [each] = balance(plan, arms_of(folded(plan, rows).tallies))
    x0, x1 = (rows["x0"][rows["group"] == arm] for arm in ("arm0", "arm1"))
    assert each.difference == pytest.approx((x1.mean() - x0.mean()) / math.sqrt((x1.var() + x0.var()) / 2))


def test_a_large_level_costs_no_digits() -> None:
    plan, rows = make_trial(4, n=400)
    near, far = (
        balance(plan, arms_of(folded(plan, rows.assign(x0=rows["x0"] + shift)).tallies))[0] for shift in (0.0, 2.0**30)
    )
    assert far.difference == pytest.approx(near.difference, rel=1e-5)


@simulated(50, 150)
def test_chance_is_what_randomisation_gives(trials: int) -> None:
    """Over many trials the difference varies as `chance` says: by records, and by units where these are randomised."""
    for units in (False, True):
        scores = []
        for seed in range(trials):
            plan, rows = make_trial(seed, n=100, units=units)
            if units:  # a covariate that is the same for all records of a unit
                rows["x0"] = [float(crc32(f"{unit} {seed}".encode()) % 1000) for unit in rows["unit"]]
            [each] = balance(plan, arms_of(folded(plan, rows).tallies))
            scores.append(each.difference / each.chance)
        assert np.std(scores) == pytest.approx(1, abs=2 / np.sqrt(trials))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("units", [False, True])
def test_chance_is_the_robust_error_of_the_difference(units: bool, weighted: bool) -> None:
    """As if the covariate were an outcome: statsmodels on the kept rows, HC0 or CR0."""
    plan, rows = make_trial(11, n=300, units=units, weighted=weighted)
    [each] = (
        balance(plan, arms_of(folded(plan, rows, 120).tallies))
        if not units
        else balance(plan, arms_of(folded(plan, rows).tallies))
    )
    as_outcome = msgspec.structs.replace(plan, outcomes=["x0"], covariates=[])
    if units:
        _, _, fit = fitted(as_outcome, rows, "difference", "arm1", "x0", "CR0")
        groups = pd.factorize(rows["unit"])[0]
        scores = pd.DataFrame(fit.model.wexog * fit.wresid[:, None]).groupby(groups).sum().to_numpy()
        bread = fit.normalized_cov_params
        error = math.sqrt((bread @ scores.T @ scores @ bread)[1, 1])
    else:
        _, error, _ = fitted(as_outcome, rows, "difference", "arm1", "x0", "HC0")
    spread = (each.mean - each.control_mean) / each.difference
    assert each.chance * spread == pytest.approx(error, rel=1e-7)


def test_covariates_that_do_not_vary() -> None:
    plan = fa.Plan(
        name="p", arm="g", arms={"a": 0.5, "b": 0.5}, moments=fa.Moments(), outcomes=["y"], covariates=["same", "apart"]
    )
    trial = fa.Trial(plan)
    y = [1.0, 2.0, 3.0, 4.0]
    trial.fold({"g": ["a", "a", "b", "b"], "y": y, "same": [2.0] * 4, "apart": [0.0, 0.0, 1.0, 1.0]})
    same, apart = balance(plan, arms_of(trial.tallies))
    assert (same.difference, same.verdict) == (0.0, "even")
    assert (apart.difference, apart.verdict) == (math.inf, "uneven")


def test_arms_without_two_records_have_no_balance() -> None:
    plan, rows = make_trial(5, n=60, arms=3)
    assert balance(plan, arms_of(fa.Trial(plan).tallies)) == []
    some = folded(plan, rows[rows["group"] != "arm2"])
    assert {each.arm for each in balance(plan, arms_of(some.tallies))} == {"arm1"}
    no_control = folded(plan, rows[rows["group"] != "arm0"])
    assert balance(plan, arms_of(no_control.tallies)) == []


def test_names_that_look_alike_are_told_apart() -> None:
    """A numeric covariate may be called as the intercept is, or as a level of another."""
    plan, rows = make_trial(6, n=80, covariates=2, levels=2)
    plan = replaced(plan, covariates=["1", "kind[l1]", {"column": "kind", "levels": plan.levels["kind"]}])
    found = balance(plan, arms_of(folded(plan, rows.rename(columns={"x0": "1", "x1": "kind[l1]"})).tallies))
    assert [each.covariate for each in found] == ["1", "kind[l1]", "kind[l0]", "kind[l1]"]
    assert found[2].mean == pytest.approx(1 - found[3].mean)


@pytest.mark.parametrize(
    ("difference", "chance", "verdict"),
    [
        (0.05, 0.02, "even"),
        (0.05, 0.001, "small"),
        (-0.05, 0.001, "small"),
        (0.3, 0.2, "chance"),
        (-0.3, 0.05, "uneven"),
        (0.3, 0.05, "uneven"),
        (math.nan, 1, "even"),
    ],
)
def test_verdicts(difference: float, chance: float, verdict: str) -> None:
    assert Balance("x", "b", 0.0, 0.0, difference, chance).verdict == verdict
    few = Balance("x", "b", 0.0, 0.0, difference, chance, df=2)  # 31.6 deviations are as rare as 3.29 are else
    assert few.verdict == {"uneven": "chance"}.get(verdict, verdict)
    by_record = Balance("x", "b", 0.0, 0.0, difference, chance, by_record=True)
    assert by_record.verdict == {"uneven": "open", "small": "even"}.get(verdict, verdict)


@simulated(25, 100)
def test_units_of_many_records_do_not_look_uneven(trials: int) -> None:
    """By record, every other of these trials would be called so; none may be where units cannot be told apart."""
    verdicts = [
        balance(t.plan, arms_of(t.tallies))[0].verdict
        for t in (crowded(i, moments={"bootstrap": 100}) for i in range(trials))
    ]
    assert sum(verdict in ("uneven", "small") for verdict in verdicts) <= 0.03 * trials
    plain = [balance(t.plan, arms_of(t.tallies))[0].verdict for t in (crowded(i, each=20) for i in range(20))]
    assert "open" in plain
    assert not {"uneven", "small"} & set(plain)


def test_the_bootstraps_chance_is_that_of_counted_units() -> None:
    resampled = crowded(5, each=20, moments={"bootstrap": 2000})
    counted = crowded(5, each=20, records_per_unit="together")
    [ours], [theirs] = (balance(trial.plan, arms_of(trial.tallies)) for trial in (resampled, counted))
    assert ours.difference == pytest.approx(theirs.difference, rel=1e-9)
    assert ours.chance == pytest.approx(theirs.chance, rel=0.07)  # its own error is 1/√(2·2000) in each arm


def test_without_a_robust_tally_chance_is_the_usual_error_of_a_difference() -> None:
    plan, rows = make_trial(3, n=80)
    [each] = balance(plan, arms_of(folded(replaced(plan, errors=["classical"]), rows).tallies))
    x0, x1 = (rows["x0"][rows["group"] == arm] for arm in ("arm0", "arm1"))
    error = math.sqrt(x0.var() / len(x0) + x1.var() / len(x1))
    assert each.chance == pytest.approx(error / math.sqrt((x1.var() + x0.var()) / 2))
