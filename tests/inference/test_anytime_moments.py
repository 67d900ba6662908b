"""Any-time intervals of rows from moments: against kept rows, what they wait for, and under many looks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.inference.anytime import ENOUGH, LEAST_GROUPS_ANYTIME, anytime_reach
from plans import replaced
from trials import from_moments, make_trial

PLAN = fa.Plan(
    name="looks",
    arm="g",
    arms={"a": 0.9, "b": 0.1},
    outcomes=["y"],
    moments=fa.Moments(estimators=["difference"], errors=["HC2"]),
    expected_units=1000,
)


def effects(plan: fa.Plan, columns: Any) -> fa.Effects:
    trial = fa.Trial(plan)
    trial.fold(columns)
    return from_moments(trial.effects())


def row_of(treated: Any, y: Any, plan: fa.Plan = PLAN) -> Any:
    return effects(plan, {"g": np.where(treated, "b", "a"), "y": y})[0]


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("units", [False, True])
def test_the_interval_is_that_of_the_larger_error_on_kept_rows(units: bool) -> None:
    plan, rows = make_trial(31, n=2000, arms=3, units=True)
    # The control varies more than arm1, which therefore gets the pooled error, and less than arm2, which keeps its own.
    spread = rows["group"].map({"arm0": 2.0, "arm1": 0.5, "arm2": 5.0})
    rows = rows.assign(y0=30 + spread * np.random.default_rng(1).normal(size=len(rows)))
    plan = replaced(plan, errors=["CR1"] if units else ["HC1"])
    larger = set()
    for row in effects(plan, rows):
        y = {arm: part.to_numpy() for arm, part in rows.groupby("group")["y0"]}
        ours, theirs = y[row.arm], y["arm0"]
        own = ours.var() / len(ours) + theirs.var() / len(theirs)
        per_record = (len(ours) * ours.var() + len(theirs) * theirs.var()) / (len(ours) + len(theirs))
        ratio = max(1.0, per_record * (1 / len(ours) + 1 / len(theirs)) / own)
        larger.add(ratio > 1)
        n = rows["unit"].nunique() if units else len(rows)
        df = row.df if units else math.inf
        assert row.std_error is not None
        assert row.estimate is not None
        reach = float(anytime_reach(np.asarray(n), 0.95, plan.tightest_at, math.inf if df is None else df))
        half = reach * row.std_error * math.sqrt(ratio)
        assert row.anytime_ci_lower == pytest.approx(row.estimate - half, rel=1e-9)
        assert row.anytime_ci_upper == pytest.approx(row.estimate + half, rel=1e-9)
    assert larger == {False, True}


def test_it_waits_for_conversions_in_the_smaller_arm() -> None:
    treated = np.arange(10_000) % 10 == 0
    y = np.zeros(10_000)
    y[: 10 * ENOUGH - 1] = 1
    row = row_of(treated, y)
    assert row.reliable
    assert row.anytime_ci_lower is None
    assert row.anytime_why == (
        "An any-time interval waits until about 20 records of the smaller arm carry the outcome; so far there are "
        "about 15."
    )
    y[10 * ENOUGH - 1] = 1
    for outcome in (y, 1 - y):
        assert row_of(treated, outcome).anytime_why is None


def test_it_waits_where_signs_cancel_and_says_what_can_tell() -> None:
    rng = np.random.default_rng(2)
    treated, y = np.arange(4000) % 10 == 0, rng.normal(size=4000)
    assert "without `moments`" in row_of(treated, y).anytime_why
    assert "without `moments`" not in row_of(treated, (y > 2.2).astype(float)).anytime_why
    assert row_of(treated, y + 5).anytime_why is None


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_clustered_errors_take_sixteen_units_in_each_arm() -> None:
    plan = replaced(PLAN, errors=["CR1"], unit="u", records_per_unit="together")
    rng = np.random.default_rng(3)
    for units, told in ((LEAST_GROUPS_ANYTIME - 1, False), (LEAST_GROUPS_ANYTIME, True)):
        unit = np.arange(50 + units).repeat(20)
        columns = {"g": np.where(unit < 50, "a", "b"), "y": 5 + rng.normal(size=len(unit)), "u": unit}
        row = effects(plan, columns)[0]
        assert row.reliable
        assert (row.anytime_why is None) is told
        assert told or row.anytime_why == "An any-time interval needs 16 units in each arm; an arm has 15."


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_unequal_arms_and_rare_conversions_under_many_looks() -> None:
    """150 trials without an effect, looked at after every ten records; it was 22 % with the arms' own errors alone.

    A row's interval is never narrower than with those, so only looks at which they exclude zero are put to a trial: the
    first of all, and those with at least half of the evidence that an interval waits for.
    """
    rng = np.random.default_rng(4)
    trials, last = 150, 20_000  # after 10,000 of which there is evidence enough
    treated, y = rng.random((trials, last)) < 0.1, (rng.random((trials, last)) < 0.02).astype(float)
    n = np.stack([np.cumsum(~treated, axis=1), np.cumsum(treated, axis=1)], axis=-1)[:, 9::10]
    ones = np.stack([np.cumsum(y * ~treated, axis=1), np.cumsum(y * treated, axis=1)], axis=-1)[:, 9::10]
    mean = ones / np.maximum(n, 1)
    error = np.sqrt((mean * (1 - mean) / np.maximum(n - 1, 1)).sum(axis=-1))
    reach = anytime_reach(n.sum(axis=-1), PLAN.confidence, PLAN.tightest_at)
    alone = (n.min(axis=-1) > 1) & (np.abs(mean[..., 1] - mean[..., 0]) > 0.999 * reach * error)
    assert np.mean(alone.any(axis=1)) > 0.15
    near = alone & (n.min(axis=-1) * ones.sum(axis=-1) / n.sum(axis=-1) > ENOUGH / 2)

    def shown(which: int) -> Iterator[Any]:
        trial, start = fa.Trial(PLAN), 0
        for look in [*np.flatnonzero(alone[which])[:1], *np.flatnonzero(near[which])[1:], last // 10 - 1]:
            seen = slice(start, start := 10 * (look + 1))
            trial.fold({"g": np.where(treated[which, seen], "b", "a"), "y": y[which, seen]})
            yield from_moments(trial.effects())[0]

    told, wrong = 0, 0
    for which in range(trials):
        *_, end = rows = [row for row in shown(which) if row.anytime_why is None] or [None]
        told += end is not None
        wrong += any(row.anytime_p_value <= 0.05 for row in rows if row is not None)
    assert told == trials
    assert wrong <= 0.05 * trials
