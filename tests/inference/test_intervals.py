"""Intervals and p-values, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import foldaway as fa
from foldaway.inference.intervals import critical, p_value
from trials import folded, known, make_trial

DF = [1, 2, 3.7, 10, 99.5, 1e4, 1e9]


@pytest.mark.parametrize("df", DF)
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999])
def test_the_reach_of_an_interval_is_students(df: float, confidence: float) -> None:
    assert critical(confidence, df) == pytest.approx(stats.t.ppf(0.5 + confidence / 2, df), rel=1e-9)


@pytest.mark.parametrize("df", DF)
@pytest.mark.parametrize("statistic", [0.0, 0.3, -1.96, 5.0, -30.0])
def test_p_values_are_students_and_two_sided(df: float, statistic: float) -> None:
    assert p_value(statistic, df) == pytest.approx(2 * stats.t.sf(abs(statistic), df), rel=1e-9)
    assert p_value(-statistic, df) == p_value(statistic, df)


def test_an_interval_ends_where_the_p_value_says() -> None:
    for df in DF:
        assert p_value(critical(0.9, df), df) == pytest.approx(0.1, rel=1e-9)


def test_effects_carry_the_interval_of_their_plan() -> None:
    plan, rows = make_trial(31, n=300, units=True)
    effects = folded(plan, rows).effects()
    for row in effects:
        reach = stats.t.ppf(0.975, row.df)
        assert row.ci_upper == pytest.approx(row.estimate + reach * row.std_error, rel=1e-9)
        assert row.p_value == pytest.approx(2 * stats.t.sf(abs(known(row.statistic)), row.df), rel=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_confidence_is_the_plans(confidence: float) -> None:
    plan = fa.Plan(
        name="c", arm="g", arms={"a": 0.5, "b": 0.5}, moments=fa.Moments(), outcomes=["y"], confidence=confidence
    )
    rng = np.random.default_rng(1)
    trial = fa.Trial(plan)
    trial.fold({"g": ["a", "b"] * 40, "y": rng.normal(size=80)})
    row = trial.effects().filter(estimator="difference", se_kind="classical")[0]
    assert row.ci_upper - row.ci_lower == pytest.approx(2 * stats.t.ppf(0.5 + confidence / 2, 78) * row.std_error)
