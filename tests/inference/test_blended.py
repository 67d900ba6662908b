"""The blended variance: what it comes to at its ends, and by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from foldaway.inference.anytime import evidence
from foldaway.inference.blended import blended_difference, blended_over_levels
from foldaway.inference.jackknife import Cells, jackknife, mean
from foldaway.inference.levels import Levels, difference_of


def levels_of(*arms: Any) -> Levels:
    """Levels of independent records: arrays of trials by records."""
    n = np.stack([np.full(len(y), float(y.shape[-1])) for y in arms], axis=-1)
    value, spread = np.stack([y.mean(-1) for y in arms], -1), np.stack([y.var(-1, ddof=1) for y in arms], -1)
    own = np.eye(len(arms))
    return Levels(value, (spread / n)[..., None] * own, (1 / (n - 1))[..., None] * own, n)


def carriers_and_size(*arms: Any) -> tuple[Any, Any]:
    n = np.stack([np.full(len(y), float(y.shape[-1])) for y in arms], axis=-1)
    total, absolute, squares = (
        np.stack([each.sum(-1) for each in of], axis=-1)
        for of in (arms, [np.abs(y) for y in arms], [y**2 for y in arms])
    )
    return evidence(n, total, absolute, squares), absolute / n


def small_and_large(seed: int, n: tuple[int, int] = (400, 40)) -> Levels:
    rng = np.random.default_rng(seed)
    return levels_of(*(rng.lognormal(size=(30, each)) for each in n))


def test_without_carriers_it_is_students_pooled_variance_or_welchs_if_that_is_larger() -> None:
    rng = np.random.default_rng(1)
    y, x = rng.normal(0, 2, 300), rng.normal(0, 1, 30)
    levels = levels_of(y[None], x[None])
    found = blended_difference(levels, 1, 0.0)
    wanted = stats.ttest_ind(x, y, equal_var=True)
    # Student's has Σ (n − 1) s² over n − 2, the blended one Σ n s² over n.
    assert found.df == pytest.approx(wanted.df, rel=0.1)
    assert found.estimate / np.sqrt(found.variance) == pytest.approx(wanted.statistic, rel=0.01)
    swapped = levels_of(rng.normal(0, 1, 300)[None], rng.normal(0, 2, 30)[None])
    assert blended_difference(swapped, 1, 0.0) == difference_of(swapped, 1)


def test_with_many_carriers_it_is_welchs_and_never_smaller() -> None:
    levels, size = small_and_large(2), np.ones((30, 2))
    welch = difference_of(levels, 1)
    assert blended_difference(levels, 1, 1e9, size).variance == pytest.approx(welch.variance, rel=1e-5)
    variances = [blended_difference(levels, 1, carriers, size).variance for carriers in (0.0, 10.0, 100.0, 1e4)]
    assert np.all(np.diff(variances, axis=0) <= 0)
    assert np.all(variances >= welch.variance)


@pytest.mark.parametrize("carriers", [0.0, 5.0, 1e4])
def test_arms_that_vary_alike_have_welchs_variance(carriers: float) -> None:
    n = np.array([50.0, 50.0, 200.0])
    levels = Levels(np.arange(3.0), np.diag(4 / n), np.diag(1 / (n - 1)), n)
    for arm in (1, 2):
        found = blended_difference(levels, arm, carriers, np.ones(3))
        assert found.variance == pytest.approx(4 / n[0] + 4 / n[arm])


def test_units_of_measurement_and_the_arms_order_do_not_matter() -> None:
    levels, size = small_and_large(3), np.abs(np.random.default_rng(3).normal(size=(30, 2)))
    found = blended_difference(levels, 1, 7.0, size)
    scaled = levels._replace(value=1e3 * levels.value, covariance=1e6 * levels.covariance)
    assert blended_difference(scaled, 1, 7.0, 1e3 * size).variance == pytest.approx(1e6 * found.variance)
    other = blended_difference(levels, 0, 7.0, size, control=1)
    assert other.variance == pytest.approx(found.variance)
    assert other.df == pytest.approx(found.df)
    assert other.estimate == pytest.approx(-found.estimate)


def test_a_third_arm_and_leading_axes_change_nothing() -> None:
    rng = np.random.default_rng(4)
    arms = [rng.lognormal(size=(5, n)) for n in (300, 20, 60)]
    three, two = levels_of(*arms), levels_of(arms[0], arms[2])
    size = np.ones((5, 3))
    assert np.array_equal(blended_difference(three, 2, 3.0, size), blended_difference(two, 1, 3.0, size[:, :2]))
    first = Levels(*(each[0] for each in two[:4]))
    assert blended_difference(first, 1, 3.0).variance == blended_difference(two, 1, 3.0).variance[0]


def test_where_nothing_varies_there_is_no_variance() -> None:
    levels = levels_of(np.zeros((1, 9)), np.zeros((1, 3)))
    assert blended_difference(levels, 1, 0.0, np.zeros((1, 2))).variance == 0


def missed(levels: Levels, carriers: Any, size: Any, effect: float) -> tuple[float, float, float]:
    """The shares of trials in which Welch's and the blended interval miss the effect, and how much wider they are."""
    shares, reaches = [], []
    for found in (difference_of(levels, 1), blended_difference(levels, 1, carriers, size)):
        reach = stats.t.ppf(0.975, found.df) * np.sqrt(found.variance)
        shares.append(float(np.mean(np.abs(found.estimate - effect) > reach)))
        reaches.append(reach.mean())
    return shares[0], shares[1], reaches[1] / reaches[0]


def revenue(rng: Any, shape: tuple[int, int], share: float) -> Any:
    return (rng.random(shape) < share) * rng.lognormal(size=shape)


@pytest.mark.parametrize(("n", "share"), [((950, 50), 0.1), ((2_000, 20), 1.0), ((1_800, 200), 0.02)])
def test_skewed_revenue_of_a_small_arm_is_not_wrong_more_often_than_it_says(n: tuple[int, int], share: float) -> None:
    rng = np.random.default_rng(5)
    arms = [revenue(rng, (1_500, each), share) for each in n]
    before, now, _ = missed(levels_of(*arms), *carriers_and_size(*arms), 0.0)
    assert now < 0.06 < before


def test_it_follows_an_effect_that_makes_all_larger_or_smaller() -> None:
    rng = np.random.default_rng(6)
    for factor in (2.0, 0.5):
        arms = [rng.lognormal(size=(1_000, 950)), factor * rng.lognormal(size=(1_000, 50))]
        before, now, width = missed(levels_of(*arms), *carriers_and_size(*arms), (factor - 1) * np.exp(0.5))
        assert now < 0.085
        assert now < before
        assert width < 1.4


def test_units_with_many_records() -> None:
    rng = np.random.default_rng(7)
    trials, units, groups = 500, 600, 64
    arm = (rng.random((trials, units)) < 0.08).astype(int)
    n = 1.0 + rng.poisson(3, (trials, units))
    total = n * rng.lognormal(size=(trials, units)) * rng.lognormal(size=(trials, units))
    place = ((np.arange(trials)[:, None] * groups + rng.integers(0, groups, (trials, units))) * 2 + arm).ravel()
    counted, summed = (np.bincount(place, each.ravel(), trials * groups * 2) for each in (n, total))
    shape = trials, groups, 2
    levels = jackknife(mean, Cells(counted.reshape(shape).astype(float), summed.reshape(shape).astype(float)))
    sums = [np.stack([np.where(arm == a, each, 0).sum(-1) for a in (0, 1)], -1) for each in (n, total, total**2 / n)]
    carriers = evidence(sums[0], sums[1], sums[1], sums[2])
    before, now, _ = missed(levels, carriers, sums[1] / sums[0], 0.0)
    assert now < 0.06 < before


def test_adjusted_levels_are_stretched_as_the_outcome_is_that_was_measured() -> None:
    """Coefficients that fit the small arm leave it little spread, which says nothing of a spread that it hides."""
    n = np.array([2_970.0, 330.0])
    measured = Levels(np.zeros(2), np.diag(3.25 / n), np.diag(1 / (n - 1)), n)
    adjusted = measured._replace(covariance=np.diag(np.array([8.3, 1.1]) / n))
    size = np.ones(2)
    own = blended_difference(adjusted, 1, 200.0, size).variance
    beside = blended_difference(adjusted, 1, 200.0, size, plain=measured).variance
    assert beside == pytest.approx(difference_of(adjusted, 1).variance, rel=1e-9)
    assert beside < difference_of(measured, 1).variance < own


def test_over_levels_the_blended_variance_is_right_on_average() -> None:
    """The larger of two noisy variances, level by level, is too large; one ratio for all levels is not."""
    rng = np.random.default_rng(2)
    n = np.broadcast_to(np.array([270.0, 30.0]), (2_000, 6, 2))
    found = rng.chisquare(n - 1) / (n - 1) / n  # the variances of means of records with variance 1
    levels = Levels(np.zeros(n.shape), found[..., None] * np.eye(2), np.eye(2) / (n - 1)[..., None], n)
    carriers, size = np.full(n.shape[:-1], 20.0), np.ones(n.shape)
    true = (1 / n).sum(axis=-1)
    together = blended_over_levels(levels, 1, carriers, size).variance
    apart = blended_difference(levels, 1, carriers, size).variance
    assert 0.99 < np.mean(together / true) < 1.03 < np.mean(apart / true)
