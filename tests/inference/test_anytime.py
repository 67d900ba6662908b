"""Any-time intervals: the mixture's boundary, what they wait for, and their errors under many looks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import foldaway as fa
from foldaway.inference.anytime import (
    ENOUGH,
    Watched,
    anytime_effect,
    anytime_p_value,
    anytime_reach,
    anytime_variance,
    evidence,
    evidence_of,
)
from foldaway.inference.jackknife import Cells, cells_of, jackknife, mean
from foldaway.inference.levels import Levels
from foldaway.inference.welch import Spread, spread_of, welch
from foldaway.tallies.sums import Sums, SumsShape
from sizes import simulated


def reach_of(n: int, confidence: float = 0.95, tightest_at: int = 1000) -> float:
    return float(anytime_reach(np.asarray(n), confidence, tightest_at))


def evidence_in(sums: Sums) -> float:
    return float(evidence_of(sums, 0, np.array([0, 1])))


def rho(confidence: float, tightest_at: int) -> float:
    """Waudby-Smith et al. (2024): ρ = √((−2 log α + log(−2 log α + 1)) / n*)."""
    alpha = 1 - confidence
    return math.sqrt((-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest_at)


@pytest.mark.parametrize("n", [1, 30, 500, 10_000, 3_000_000])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("tightest_at", [100, 10_000])
def test_at_the_boundary_the_mixture_martingale_is_one_over_alpha(n: int, confidence: float, tightest_at: int) -> None:
    """Ville's inequality: ∫ exp(λS − λ²n/2) dN(0, ρ²)(λ) reaches 1/α with probability at most α, ever."""
    s = reach_of(n, confidence, tightest_at) * math.sqrt(n)  # the sum of n standard normals, at the boundary
    scale = rho(confidence, tightest_at)
    peak, spread = s / (n + scale**-2), 1 / math.sqrt(n + scale**-2)  # of the integrand

    def integrand(z: float) -> float:
        at = peak + spread * z
        return math.exp(at * s - at * at * n / 2 - at * at / (2 * scale**2)) / (scale * math.sqrt(2 * math.pi))

    value = spread * integrate.quad(integrand, -12, 12)[0]
    assert value == pytest.approx(1 / (1 - confidence), rel=1e-8)


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
def test_it_is_tightest_where_the_plan_says(n: int) -> None:
    others = [reach_of(n, 0.95, round(n * factor)) for factor in np.geomspace(0.1, 10, 41)]
    assert reach_of(n, 0.95, n) <= 1.002 * min(others)
    assert reach_of(n, 0.95, n) < 0.95 * max(others)


def test_it_is_wider_than_the_interval_for_a_single_look() -> None:
    for n in (2, 30, 1000, 10**7):
        assert reach_of(n, 0.95, 1000) > stats.norm.ppf(0.975)


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
    anytime = anytime_reach(n.astype(float), 0.95, 500)
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


@pytest.mark.parametrize("df", [4.0, 15.0, 127.0, 1e6])
def test_through_t_the_reach_has_the_mixtures_tail(df: float) -> None:
    reach = float(anytime_reach(np.asarray(500), 0.95, 1000, df))
    assert stats.t.sf(reach, df) == pytest.approx(stats.norm.sf(reach_of(500)), rel=1e-9)


@pytest.mark.parametrize("df", [math.inf, 20.0])
@pytest.mark.parametrize("statistic", [3.2, 4.0, 6.0])
def test_the_p_value_is_where_the_interval_ends_at_zero(statistic: float, df: float) -> None:
    """The mixture of the plan, and the α at which its boundary is the statistic."""
    n, at = 2000, 1000
    two_logs = -2 * math.log(0.05)
    time = n * (two_logs + math.log(two_logs + 1)) / at
    z = statistic if math.isinf(df) else stats.norm.isf(stats.t.sf(statistic, df))

    def gap(log_alpha: float) -> float:
        return float((time + 1) / time * (math.log(time + 1) - 2 * log_alpha) - z**2)

    alpha = math.exp(optimize.brentq(gap, -200, 5))
    found = float(anytime_p_value(np.asarray(-statistic), np.asarray(n), 0.95, at, df))
    assert found == pytest.approx(min(alpha, 1), rel=1e-9)
    edge = float(anytime_reach(np.asarray(n), 0.95, at, df))
    assert float(anytime_p_value(np.asarray(edge), np.asarray(n), 0.95, at, df)) == pytest.approx(0.05, rel=1e-9)


# One side.


@pytest.mark.parametrize("n", [30, 10_000, 3_000_000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_one_sided_the_upper_half_of_the_mixture_is_one_over_alpha(n: int, confidence: float) -> None:
    """2 ∫₀^∞ exp(λS − λ²n/2) dN(0, ρ²)(λ) at the boundary, and the p-value there."""
    reach = float(anytime_reach(np.asarray(n), confidence, 1000, one_sided=True))
    s, scale = reach * math.sqrt(n), rho(confidence, 1000)
    peak, spread = s / (n + scale**-2), 1 / math.sqrt(n + scale**-2)

    def integrand(z: float) -> float:
        at = peak + spread * z
        return 2 * math.exp(at * s - at * at * n / 2 - at * at / (2 * scale**2)) / (scale * math.sqrt(2 * math.pi))

    value = spread * integrate.quad(integrand, max(-peak / spread, -12), 12)[0]
    assert value == pytest.approx(1 / (1 - confidence), rel=1e-7)
    p = anytime_p_value(np.array([reach, -reach, -1e300]), np.asarray(n), confidence, 1000, one_sided=True)
    assert p.tolist() == pytest.approx([1 - confidence, 1.0, 1.0], rel=1e-9)
    assert reach < float(anytime_reach(np.asarray(n), confidence, 1000))


def test_one_sided_it_holds_however_often_one_looks() -> None:
    rng = np.random.default_rng(7)
    n = np.arange(1.0, 3001)
    reach = anytime_reach(n, 0.95, 500, one_sided=True)
    wrong = [np.any(np.cumsum(rng.normal(size=(500, 3000)), axis=1) / np.sqrt(n) > reach, axis=1) for _ in range(4)]
    assert 0.01 < np.mean(wrong) <= 0.05


# The error.


def test_an_arm_that_has_shown_no_variance_gets_the_others() -> None:
    levels = Levels(
        np.array([0.02, 0.0]), np.diag([0.02 / 900, 0.0]), np.diag([1 / 899, 1 / 99]), np.array([900.0, 100.0])
    )
    per_record = 900 * 0.02 / 1000
    assert float(anytime_variance(levels, 1)) == pytest.approx(per_record * (1 / 900 + 1 / 100), rel=1e-12)


def test_an_arm_that_varies_more_keeps_its_own() -> None:
    levels = Levels(np.zeros(2), np.diag([1 / 900, 9 / 100]), np.diag([1 / 899, 1 / 99]), np.array([900.0, 100.0]))
    assert float(anytime_variance(levels, 1)) == pytest.approx(1 / 900 + 9 / 100, rel=1e-12)


# The evidence.


def test_for_conversions_it_is_their_expected_number_in_the_smaller_arm() -> None:
    n, ones = np.array([9000.0, 1000.0]), np.array([180.0, 25.0])
    assert float(evidence(n, ones, ones, ones)) == pytest.approx(205 * 0.1)
    left = n - ones
    assert float(evidence(n, left, left, left)) == pytest.approx(205 * 0.1)


def test_with_weights_the_rarer_value_counts_too() -> None:
    rng = np.random.default_rng(3)
    n, w = 1000, rng.exponential(size=1000) + 0.1
    arm = np.array(["a", "b"] * (n // 2))
    for rare in (0.0, 1.0):
        v = np.full(n, 1 - rare)
        v[[3, 6, 8]] = rare
        plan = fa.Plan(name="w", arm="arm", arms={"a": 0.5, "b": 0.5}, weight="w", outcomes=[fa.Share("v", above=0.5)])
        trial = fa.Trial(plan)
        trial.fold({"arm": arm, "w": w, "v": v})
        [row] = trial.effects()
        assert row.anytime_ci_lower is None
        assert "fewer than 5" in str(row.anytime_why)


def test_from_sums_it_is_what_the_records_give() -> None:
    rng = np.random.default_rng(1)
    for y in (rng.lognormal(0, 1.5, 4000), rng.normal(0.1, 1, 4000), rng.normal(1e7, 1, 4000)):
        arm = rng.choice(3, 4000, p=[0.6, 0.1, 0.3])
        sums = Sums.empty(SumsShape(3, 1, 4)).fold(arm, y[None], rng.integers(0, 4, 4000))
        both = y[arm != 2]
        smaller = min(np.sum(arm == 0), np.sum(arm == 1))
        expected = smaller * np.abs(both).sum() ** 2 / (len(both) * (both**2).sum())
        assert evidence_in(sums) == pytest.approx(expected, rel=1e-10)


def sums_of(rng: np.random.Generator, n: int, rate: float, groups: int = 32) -> Sums:
    arm = (rng.random(n) < 0.1).astype(int)
    return Sums.empty(SumsShape(2, 1, groups)).fold(
        arm, (rng.random((1, n)) < rate).astype(float), rng.integers(0, groups, n)
    )


def watched(sums: Sums, levels: Levels) -> Watched:
    return Watched(levels, evidence_in(sums), levels.n)


def test_it_waits_for_evidence_and_says_how_much_there_is() -> None:
    sums = sums_of(np.random.default_rng(2), 2000, 0.02)
    waiting = anytime_effect(watched(sums, welch(spread_of(sums, 0))), 0.95, 1000)
    assert waiting[:3] == (None, None, None)
    found = evidence_in(sums)
    so_far = "fewer than 5" if found < 5 else f"about {5 * int(found // 5)}"  # not so that cases could be counted
    assert f"so far there are {so_far}." in waiting.why
    sums = sums_of(np.random.default_rng(2), 20_000, 0.02)
    levels = welch(spread_of(sums, 0))
    shown = anytime_effect(watched(sums, levels), 0.95, 1000)
    assert shown.why == ""
    assert shown.lower is not None
    assert shown.upper is not None
    assert shown.p_value is not None
    half = reach_of(20_000) * math.sqrt(float(anytime_variance(levels, 1)))
    assert (shown.upper - shown.lower) / 2 == pytest.approx(half, rel=1e-12)
    assert (shown.p_value < 0.05) == (shown.lower > 0 or shown.upper < 0)


def test_it_takes_sixteen_groups() -> None:
    rng = np.random.default_rng(3)
    for groups, told in ((8, False), (16, True)):
        sums = sums_of(rng, 30_000, 0.2, groups)
        found = anytime_effect(watched(sums, jackknife(mean, cells_of(sums, 0))), 0.95, 1000)
        assert (found.lower is not None) is told
        assert told or "needs units in 16 groups of each arm; an arm has units in 8" in found.why


# Under continuous looks.


def looks(seed: int, share: float, rate: float, trials: int, last: int) -> tuple[Any, Any]:
    """Records and conversions in each arm after every ten records, no effect: trials by looks by arms."""
    rng = np.random.default_rng(seed)
    treated, y = rng.random((trials, last)) < share, rng.random((trials, last)) < rate
    cells = [np.cumsum(one, axis=1)[:, 9::10] for one in (~treated, treated, y & ~treated, y & treated)]
    return np.stack(cells[:2], axis=-1).astype(float), np.stack(cells[2:], axis=-1).astype(float)


@pytest.mark.parametrize("share", [0.1, 0.01])
def test_unequal_arms_raise_few_false_alarms_where_the_plain_interval_raised_many(share: float) -> None:
    n, ones = looks(4, share, 0.02, trials=300, last=12_000)
    means = ones / np.maximum(n, 1)
    levels = welch(Spread(n, n, means[..., None], (n * means * (1 - means))[..., None, None]))
    reach = anytime_reach(n.sum(axis=-1), 0.95, 1000)
    effect = np.abs(levels.value[..., 1] - levels.value[..., 0])
    plain = np.sqrt(levels.covariance[..., 0, 0] + levels.covariance[..., 1, 1])
    alone = (n.min(axis=-1) > 1) & (effect > reach * plain)
    enough = evidence(n, ones, ones, ones) >= ENOUGH
    ours = enough & (effect > reach * np.sqrt(anytime_variance(levels, 1)))
    assert np.mean(alone.any(axis=1)) > 0.15
    assert np.mean(ours.any(axis=1)) <= 0.05
    if share == 0.1:
        assert np.all(enough[:, -1])  # it does come


@simulated(250, 1000)
def test_with_sixteen_groups_it_holds_through_t_and_not_without(trials: int) -> None:
    rng = np.random.default_rng(5)
    steps, G, each = 300, 16, 20.0
    # Group sums of a random walk: at each look there are 20 records more in each of 16 groups of either arm.
    walk = np.cumsum(rng.normal(scale=math.sqrt(each), size=(trials, steps, G, 2)), axis=1)
    weight = np.broadcast_to(each * np.arange(1, steps + 1)[:, None, None], walk.shape)
    levels = jackknife(mean, Cells(weight, walk))
    n = levels.n.sum(axis=-1)
    error = np.sqrt(anytime_variance(levels, 1))
    effect = np.abs(levels.value[..., 1] - levels.value[..., 0])
    wrong = [np.mean(np.any(effect > error * anytime_reach(n, 0.95, 10_000, df), axis=1)) for df in (math.inf, G - 1.0)]
    assert wrong[0] > 0.05
    assert wrong[1] <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
