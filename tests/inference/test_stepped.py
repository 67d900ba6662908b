"""Intervals of quantiles by inverting the distribution function: against order statistics, and by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from foldaway.inference.claim import Claim
from foldaway.inference.stepped import Stepped, stepped
from sizes import simulated

COUNTS = np.arange(31.0)  # a bin for each whole number from 0
FINE = np.geomspace(0.01, 100, 926)  # 1 %


def histogram(values: Any, edges: Any, groups: Any = 0, G: int = 1) -> Any:
    """Records by arm, group and bin; values are trials by arms by records."""
    trials, arms = values.shape[:2]
    bins = np.searchsorted(edges, values, side="right")
    first = np.arange(trials)[:, None, None] * arms + np.arange(arms)[:, None]
    place = ((first * G + groups) * (len(edges) + 1) + bins).ravel()
    return np.bincount(place, minlength=trials * arms * G * (len(edges) + 1)).reshape(trials, arms, G, -1).astype(float)


def lognormal(seed: int, trials: int = 300, n: int = 800) -> Any:
    return np.random.default_rng(seed).lognormal(size=(trials, 2, n))


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_an_arms_interval_is_about_that_of_order_statistics(p: float) -> None:
    """Whose ranks are binomial (Conover 1999, 3.2), to a bin's width and a rank or two."""
    values = np.sort(lognormal(1, trials=20), axis=-1)
    lower, upper = stepped(histogram(values, FINE), FINE, p).ends(stats.norm.ppf(0.975))
    ranks = stats.binom.ppf([0.025, 0.975], 800, p).astype(int)
    for found, rank in ((lower, ranks[0]), (upper, ranks[1])):
        assert np.all(found > values[..., rank - 4] * 0.99)
        assert np.all(found < values[..., rank + 4] * 1.01)


def test_one_record_in_a_group_is_a_record() -> None:
    values = lognormal(2, trials=3, n=512)
    alone = stepped(histogram(values, FINE), FINE, 0.5)
    grouped = stepped(histogram(values, FINE, np.arange(512), 512), FINE, 0.5)
    assert grouped.df == pytest.approx(alone.df)
    # Σd²/(1 − 1/n)/n² is F(1 − F)/(n − 1).
    assert grouped.error == pytest.approx(alone.error * np.sqrt(512 / 511))


def test_weights_of_one_are_none_and_of_two_add_nothing() -> None:
    counts = histogram(lognormal(3, trials=2), FINE)
    plain, ones, twos = (
        stepped(weight * counts, FINE, 0.9, squares)
        for weight, squares in ((1.0, None), (1.0, counts[..., 0, :]), (2.0, 4 * counts[..., 0, :]))
    )
    for other in (ones, twos):
        assert other.error == pytest.approx(plain.error, abs=1e-12)
        assert other.df == pytest.approx(plain.df)
        assert np.allclose(other.difference(1, 2.0), plain.difference(1, 2.0))


def test_the_score_is_where_the_interval_touches() -> None:
    found = stepped(histogram(lognormal(4, trials=5), FINE), FINE, 0.5)
    for threshold in (-0.3, 0.0, 0.2):
        score = found.score(1, threshold)
        below, above = (found.difference(1, np.maximum(np.abs(score) + step, 0)) for step in (-1e-3, 1e-3))
        moved = np.abs(score) > 1e-2
        assert np.all(((below[0] > threshold) | (below[1] < threshold))[moved])
        assert np.all((above[0] <= threshold) & (above[1] >= threshold))
    both = found.score(1, 0.0), found.score(0, 0.0, control=1)
    assert both[0] == pytest.approx(-both[1], abs=1e-6)


def test_claims_read_it_through_its_score() -> None:
    found = stepped(histogram(lognormal(5, trials=1), FINE)[0], FINE, 0.5)
    for claim in (Claim(), Claim("greater", -0.2), Claim("within", 0.4)):
        statistic, p, _ = claim.by_student(lambda threshold: float(found.score(1, threshold)), np.inf)
        coverage = claim.coverage(0.95)
        lower, upper = claim.opened(*(float(end) for end in found.difference(1, stats.norm.ppf(0.5 + coverage / 2))))
        t = claim.threshold
        shown = {"two-sided": lower > t or upper < t, "greater": lower > t, "within": lower > -t and upper < t}
        assert (p < 0.05) == shown[claim.alternative]
        assert np.isfinite(statistic)


def test_a_larger_score_reaches_farther_and_other_arms_do_not_matter() -> None:
    values = np.random.default_rng(6).poisson(4.0, (4, 3, 300))
    three = stepped(histogram(values, COUNTS), COUNTS, 0.5)
    two = stepped(histogram(values[:, [0, 2]], COUNTS), COUNTS, 0.5)
    assert np.array_equal(three.difference(2, 1.7), two.difference(1, 1.7))
    ends = [three.difference(2, z) for z in (0.5, 1.0, 2.0, 4.0)]
    assert np.all(np.diff([lower for lower, _ in ends], axis=0) <= 0)
    assert np.all(np.diff([upper for _, upper in ends], axis=0) >= 0)
    each = three.ends(np.array([0.5, 1.0, 2.0, 4.0]))
    assert np.array_equal(each[0][2], three.ends(2.0)[0][2])


def test_beyond_the_bounds_there_is_no_quantile_and_no_end() -> None:
    found = stepped(histogram(lognormal(7, trials=1), FINE[:460])[0], FINE[:460], 0.9)
    assert np.isnan(found.value).all()
    assert np.isnan(found.score(1, 0.0))
    values = np.linspace(0.1, 1.0, 400)[None, None]
    near = stepped(histogram(np.repeat(values, 2, axis=1), FINE[:450])[0], FINE[:450], 0.8)
    assert near.value[0] == pytest.approx(0.82, rel=0.01)
    assert np.isfinite(near.ends(1.0)[1]).all()
    assert np.isinf(near.ends(6.0)[1]).all()


def missed(found: Stepped, effect: float) -> float:
    lower, upper = found.difference(1, stats.norm.ppf(0.975))
    return float(np.mean((lower > effect) | (upper < effect)))


@pytest.mark.parametrize(("rate", "p"), [(3.0, 0.5), (12.0, 0.9)])
@pytest.mark.parametrize("edges", [COUNTS, np.geomspace(0.5, 60, 482)], ids=["bins of counts", "fine bins"])
def test_quantiles_of_counts_are_hardly_ever_wrong(rate: float, p: float, edges: Any) -> None:
    rng = np.random.default_rng(8)
    for lift in (1.0, 1.2):
        values = np.stack([rng.poisson(each, (400, 900)) for each in (rate, lift * rate)], axis=1)
        effect = stats.poisson.ppf(p, lift * rate) - stats.poisson.ppf(p, rate)
        assert missed(stepped(histogram(values, edges), edges, p), effect) < 0.04


def test_rounded_values_are_not_wrong_more_often_than_they_say() -> None:
    rng = np.random.default_rng(9)
    values = 40 * rng.lognormal(0, 0.5, (500, 2, 1_500))
    heaped = np.where(rng.random(values.shape) < 0.5, np.round(values / 5) * 5, np.round(values))
    edges = np.geomspace(1, 1_000, 695)
    assert missed(stepped(histogram(heaped, edges), edges, 0.5), 0.0) < 0.06


@pytest.mark.parametrize("coarse", [False, True])
def test_continuous_values_are_covered_and_not_by_width(coarse: bool) -> None:
    edges = FINE[::10] if coarse else FINE
    values = lognormal(10, trials=800) * np.array([[1.0], [1.2]])
    found = stepped(histogram(values, edges), edges, 0.5)
    lower, upper = found.difference(1, 1.96)
    assert 0.01 < missed(found, 0.2) < 0.07
    # Of a median the error is 1/(2 f √n), f the density.
    width = 2 * 1.96 * np.hypot(1.0, 1.2) * np.sqrt(2 * np.pi) / 2 / np.sqrt(800)
    assert np.median(upper - lower) == pytest.approx(width, rel=0.1)


@simulated(80, 250)
@pytest.mark.parametrize("p", [0.5, 0.95])
def test_units_with_many_records(p: float, trials: int) -> None:
    rng = np.random.default_rng(11)
    units, G = 200, 32
    values = np.exp(rng.normal(size=(trials, 2, units, 1)) + 0.5 * rng.normal(size=(trials, 2, units, 6)))
    groups = np.repeat(rng.integers(0, G, (trials, 2, units)), 6, axis=-1)
    flat = values.reshape(trials, 2, -1)
    assert missed(stepped(histogram(flat, FINE, groups, G), FINE, p), 0.0) < 0.07
    assert missed(stepped(histogram(flat, FINE), FINE, p), 0.0) > 0.15
