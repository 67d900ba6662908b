"""Intervals and p-values, against SciPy, an integral, and the coverage they promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import foldaway as fa
from foldaway.inference.intervals import anytime_width, critical, p_value
from trials import folded, make_trial

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


# At any time.


def rho(confidence: float, tightest_at: int) -> float:
    """Waudby-Smith et al. (2024): ρ = √((−2 log α + log(−2 log α + 1)) / n*)."""
    alpha = 1 - confidence
    return math.sqrt((-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest_at)


@pytest.mark.parametrize("n", [1, 30, 500, 10_000, 3_000_000])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("tightest_at", [100, 10_000])
def test_at_the_boundary_the_mixture_martingale_is_one_over_alpha(n: int, confidence: float, tightest_at: int) -> None:
    """Ville's inequality: ∫ exp(λS − λ²n/2) dN(0, ρ²)(λ) reaches 1/α with probability at most α, ever."""
    s = anytime_width(n, confidence, tightest_at) * math.sqrt(n)  # the sum of n standard normals, at the boundary
    scale = rho(confidence, tightest_at)
    peak, spread = s / (n + scale**-2), 1 / math.sqrt(n + scale**-2)  # of the integrand

    def integrand(z: float) -> float:
        at = peak + spread * z
        return math.exp(at * s - at * at * n / 2 - at * at / (2 * scale**2)) / (scale * math.sqrt(2 * math.pi))

    value = spread * integrate.quad(integrand, -12, 12)[0]
    assert value == pytest.approx(1 / (1 - confidence), rel=1e-8)


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
def test_it_is_tightest_where_the_plan_says(n: int) -> None:
    others = [anytime_width(n, 0.95, round(n * factor)) for factor in np.geomspace(0.1, 10, 41)]
    assert anytime_width(n, 0.95, n) <= 1.002 * min(others)
    assert anytime_width(n, 0.95, n) < 0.95 * max(others)


def test_it_is_wider_than_the_interval_for_a_single_look() -> None:
    for n in (2, 30, 1000, 10**7):
        assert anytime_width(n, 0.95, 1000) > stats.norm.ppf(0.975)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, size: rng.normal(size=size),
        lambda rng, size: rng.uniform(-1, 1, size),
        lambda rng, size: rng.choice([-1.0, 1.0], size),
    ],
    ids=["normal", "uniform", "two points"],
)
def test_coverage_holds_however_often_one_looks(draw: Callable[[np.random.Generator, tuple[int, int]], Any]) -> None:
    """2,000 runs, looked at after every record from 30 to 2,000."""
    runs, last, first = 2000, 2000, 30
    rng = np.random.default_rng(2024)
    n = np.arange(first, last + 1)
    anytime = np.array([anytime_width(int(m), 0.95, 500) for m in n])
    single = stats.t.ppf(0.975, n - 1)
    missed_anytime = missed_single = 0
    for _ in range(4):  # in parts, for memory's sake
        draws = draw(rng, (runs // 4, last))
        sums, squares = np.cumsum(draws, axis=1)[:, first - 1 :], np.cumsum(draws**2, axis=1)[:, first - 1 :]
        mean = sums / n
        error = np.sqrt((squares / n - mean**2) / (n - 1))
        missed_anytime += int(np.sum(np.any(np.abs(mean) > anytime * error, axis=1)))
        missed_single += int(np.sum(np.any(np.abs(mean) > single * error, axis=1)))
    monte_carlo = 3 * math.sqrt(0.05 * 0.95 / runs)
    assert missed_anytime / runs <= 0.05 + monte_carlo
    assert missed_single / runs >= 0.3  # what peeking does to the interval for a single look


def test_effects_carry_the_interval_of_their_plan() -> None:
    plan, rows = make_trial(31, n=300, units=True)
    effects = folded(plan, rows).effects()
    units = rows["unit"].nunique()
    for row in effects:
        counted = units if row.se_kind.startswith("CR") else len(rows)
        width = anytime_width(counted, plan.confidence, plan.anytime_n)
        assert row.anytime_ci_upper == pytest.approx(row.estimate + width * row.std_error, rel=1e-12)
        assert row.anytime_ci_lower == pytest.approx(row.estimate - width * row.std_error, rel=1e-12)
        reach = stats.t.ppf(0.975, row.df)
        assert row.ci_upper == pytest.approx(row.estimate + reach * row.std_error, rel=1e-9)
        assert row.p_value == pytest.approx(2 * stats.t.sf(abs(row.statistic), row.df), rel=1e-9)
        assert row.anytime_ci_lower < row.ci_lower < row.ci_upper < row.anytime_ci_upper


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_confidence_is_the_plans(confidence: float) -> None:
    plan = fa.Plan(name="c", arm="g", arms={"a": 0.5, "b": 0.5}, keep="moments", outcomes=["y"], confidence=confidence)
    rng = np.random.default_rng(1)
    trial = fa.Trial(plan)
    trial.fold({"g": ["a", "b"] * 40, "y": rng.normal(size=80)})
    row = trial.effects().filter(estimator="difference", se_kind="classical")[0]
    assert row.ci_upper - row.ci_lower == pytest.approx(2 * stats.t.ppf(0.5 + confidence / 2, 78) * row.std_error)
