"""Curves and tests of survival outcomes: what owners read, what others are told, and what a report shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effects
from foldaway.effects.curves import ASSUMED

ARMS = {"a": 0.5, "b": 0.5}
OUTCOME = fa.Survival("days", "gone", until=100, bins=100, better="higher")


def trial_of(n: int = 2_000, *, events: float = 1.0, **settings: Any) -> fa.Trial:
    chance = np.random.default_rng(3)
    unit, treated = np.arange(n) // 2, chance.random(n) < 0.5
    time, until = chance.exponential(np.where(treated, 130, 90)) / events, chance.uniform(20, 200, n)
    plan = fa.Plan(**{"name": "s", "arm": "g", "arms": ARMS, "outcomes": [OUTCOME], **settings})
    trial = fa.Trial(plan)
    trial.fold(
        {
            "g": np.where(treated, "b", "a"),
            "days": np.ceil(np.minimum(time, until)),
            "gone": time <= until,
            "u": unit,
            "s": np.where(unit % 3, "x", "y"),
            "w": 1 + unit % 2,
        }
    )
    return trial


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"unit": "u"},
        {"weight": "w"},
        {"unit": "u", "segments": [{"column": "s", "levels": ["x", "y"]}]},
        {"strata": {"column": "s", "probabilities": {"x": ARMS, "y": {"a": 0.45, "b": 0.55}}}},
    ],
    ids=str,
)
def test_curves_go_down_within_their_bands_and_come_back_from_json(settings: dict[str, Any]) -> None:
    effects = trial_of(**settings).effects()
    (found,) = effects.curves
    assert effects[0].reliable
    assert Effects.from_json(effects.to_json()).curves == effects.curves
    for each in found.curves:
        assert np.all(np.diff(each.survival) <= 0)
        assert np.all(np.diff(each.at_risk) <= 0)
        for low, middle, high in zip(each.lower, each.survival, each.upper, strict=True):
            assert low is None or high is None or low < middle < high
    (hazards,) = found.hazards
    assert hazards.p_value is not None
    assert hazards.p_value < 0.01
    assert hazards.hazard_ratio == pytest.approx(90 / 130, rel=0.25)
    assert ASSUMED in " ".join(effects.to_string().split())


@pytest.mark.parametrize("unit", [None, "u"])
def test_others_are_told_curves_only_between_enough_exits(unit: str | None) -> None:
    trial = trial_of(unit=unit)
    exact, told = trial.effects().curves[0], trial.told().curves[0]
    assert 5 < len(told.times) < 0.6 * len(exact.times)
    at = [exact.times.index(time) for time in told.times]
    for ours, theirs in zip(exact.curves, told.curves, strict=True):
        assert np.min(-np.diff(np.array(ours.at_risk)[at][:-1])) >= trial.plan.privacy.smallest_cell
        assert np.array(ours.survival)[at] == pytest.approx(theirs.survival, abs=0.02)
        assert theirs.survival != np.array(ours.survival)[at].tolist()


def test_few_events_are_not_told_and_a_curve_that_nobody_follows_has_no_mean() -> None:
    few = trial_of(events=0.005).told()
    assert few.curves[0].why == few[0].why
    assert not few.curves[0].curves
    short = fa.Trial(fa.Plan(name="s", arm="g", arms=ARMS, outcomes=[OUTCOME]))
    short.fold({"g": ["a", "b"] * 50, "days": np.arange(100) % 50, "gone": np.arange(100) % 3 == 0})
    assert "nobody is followed as long" in str(short.effects()[0].why)


def test_the_report_draws_the_curves_for_owners_and_others() -> None:
    trial = trial_of()
    for page in map(str, (trial.report(), trial.report(told=trial.told()))):
        assert 'class="curves"' in page
        assert page.count('class="curve c1"') == 2  # the curve, and the key of the legend
        assert "hazard ratio" in page
