"""Shares at a single look, against statsmodels and by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats import proportion

from foldaway.inference.claim import Claim
from foldaway.inference.jackknife import Cells, jackknife, mean
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.one_look_share import Shares, shares_of

FEW = [((200, 9_900), (0, 100)), ((12, 180), (30, 220)), ((3, 40), (0, 35)), ((5, 1_000), (2, 50))]


def levels_of(events: Any, n: Any) -> Levels:
    """Levels of independent records, arms on the last axis."""
    n = np.asarray(n, dtype=np.float64)
    p = events / n
    own = np.eye(2)
    return Levels(p, (p * (1 - p) / (n - 1))[..., None] * own, (1 / (n - 1))[..., None] * own, n)


def both(control: tuple[int, int], treated: tuple[int, int]) -> Shares:
    (x, n), (y, m) = control, treated
    return shares_of(levels_of(np.array([x, y]), [n, m]), 1)


@pytest.mark.parametrize(("control", "treated"), FEW)
def test_of_independent_records_it_is_agresti_and_caffos_interval_with_students_t(control: Any, treated: Any) -> None:
    wanted = proportion.confint_proportions_2indep(*treated, *control, method="agresti-caffo", compare="diff")
    middle, error = sum(wanted) / 2, (wanted[1] - wanted[0]) / 2 / stats.norm.ppf(0.975)
    found = both(control, treated).difference()
    assert found.estimate == pytest.approx(middle, rel=1e-9)
    assert np.sqrt(found.variance) == pytest.approx(error, rel=1e-9)
    ours = Claim().tested(float(found.estimate), error, float(found.df), 0.95)
    reach = stats.t.ppf(0.975, found.df) * error
    assert ours[:2] == pytest.approx((middle - reach, middle + reach))


def test_an_arm_without_events_is_not_certain() -> None:
    found = both(*FEW[0]).difference()
    p = Claim().tested(float(found.estimate), float(np.sqrt(found.variance)), float(found.df), 0.95)[3]
    assert p > 0.1  # Fisher's exact test has .27


@pytest.mark.parametrize(("control", "treated"), [FEW[1], ((40, 300), (90, 400)), ((20, 900), (25, 100))])
@pytest.mark.parametrize("compare", ["ratio", "odds-ratio"])
def test_the_ratios_are_near_the_score_intervals(control: Any, treated: Any, compare: str) -> None:
    """Koopman's, and Miettinen and Nurminen's, which statsmodels solves for."""
    wanted = proportion.confint_proportions_2indep(*treated, *control, method="score", compare=compare)
    found = both(control, treated).ratio(0.95, odds=compare == "odds-ratio")
    assert np.log([float(end) for end in found]) == pytest.approx(np.log(wanted), abs=0.05)


def test_a_share_of_zero_has_a_ratio_and_a_control_of_zero_none() -> None:
    shares = both((200, 9_900), (0, 100))
    lower, upper = shares.ratio(0.95)
    # With the control's share known, the upper end is Wilson's.
    assert (float(lower), float(upper)) == pytest.approx(
        (0, proportion.proportion_confint(0, 100, method="wilson")[1] * 9_900 / 200), rel=0.02, abs=1e-12
    )
    lower, upper = both((0, 100), (200, 9_900)).ratio(0.95)
    assert 0 < lower < 1
    assert np.isinf(upper)
    for odds in (False, True):
        lower, upper = both((0, 50), (0, 50)).ratio(0.95, odds=odds)
        assert (float(lower), float(upper)) == (0, np.inf)
        lower, upper = both((50, 50), (50, 50)).ratio(0.95, odds=odds)
        assert lower < 1 < upper


def test_swapping_the_arms_inverts_the_ratio() -> None:
    shares = both((12, 180), (30, 220))
    swapped = shares._replace(share=shares.share[::-1], worth=shares.worth[::-1])
    for odds in (False, True):
        lower, upper = shares.ratio(0.9, odds=odds)
        assert [float(1 / end) for end in swapped.ratio(0.9, odds=odds)] == pytest.approx([float(upper), float(lower)])


def test_records_that_come_in_threes_are_worth_a_third_of_them() -> None:
    rng = np.random.default_rng(1)
    units: Any = rng.multinomial(2_000, np.ones(400) / 400).reshape(200, 2)
    events = rng.binomial(units, 0.1)
    once, thrice = (jackknife(mean, Cells(times * 1.0 * units, times * 1.0 * events)) for times in (1, 3))
    one, three = shares_of(once, 1), shares_of(thrice, 1)
    # Nearly 1 by itself, so that it may not fall below.
    assert np.all(three.worth <= 1.02 * units.sum(axis=0)[::-1])
    assert three.worth == pytest.approx(one.worth, rel=0.12)
    assert three.df == pytest.approx(one.df)


def test_leading_axes_are_trials() -> None:
    n = np.array([[100.0, 50.0], [90.0, 60.0]])
    events = np.array([[3, 0], [10, 9]])
    together = shares_of(levels_of(events, n), 1)
    for trial in range(2):
        alone = shares_of(levels_of(events[trial], n[trial]), 1)
        assert together.difference().variance[trial] == alone.difference().variance
        assert [end[trial] for end in together.ratio(0.95)] == [*alone.ratio(0.95)]


def wrong(levels: Levels, effect: float) -> tuple[float, float]:
    """The shares of trials in which Welch's and the new interval miss the effect."""
    missed = []
    for found in (difference_of(levels, 1), shares_of(levels, 1).difference()):
        reach = stats.t.ppf(0.975, found.df) * np.sqrt(found.variance)
        missed.append(float(np.mean(np.abs(found.estimate - effect) > reach)))
    return missed[0], missed[1]


@pytest.mark.parametrize(
    ("n", "shares"), [((9_900, 100), (0.02, 0.02)), ((950, 50), (0.1, 0.05)), ((1_800, 200), (0.02, 0.01))]
)
def test_a_small_arm_is_wrong_no_more_often_than_it_says(n: Any, shares: Any) -> None:
    rng = np.random.default_rng(2)
    levels = levels_of(rng.binomial(n, shares, (4_000, 2)), np.tile(n, (4_000, 1)))
    before, now = wrong(levels, shares[1] - shares[0])
    assert now < 0.06 < before


def test_units_with_many_records_are_no_more_often_wrong() -> None:
    rng = np.random.default_rng(3)
    trials, units, groups = 500, 600, 64
    arm = (rng.random((trials, units)) < 0.08).astype(int)
    share = rng.beta(0.05 * 4, 0.95 * 4, (trials, units))
    size = 1 + rng.poisson(4, (trials, units))
    place = ((np.arange(trials)[:, None] * groups + rng.integers(0, groups, (trials, units))) * 2 + arm).ravel()
    counted, summed = (
        np.bincount(place, each.ravel(), trials * groups * 2).astype(float).reshape(trials, groups, 2)
        for each in (size, rng.binomial(size, share))
    )
    before, now = wrong(jackknife(mean, Cells(counted, summed)), 0.0)
    assert now < 0.07 < before
