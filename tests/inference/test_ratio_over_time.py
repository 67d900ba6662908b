"""The sample-ratio check at any time: its mixtures against integration, and by simulation over many looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from foldaway.inference.ratio_over_time import (
    LEAST_GROUPS_OVER_TIME,
    ratio_p_value,
    ratio_p_value_of_groups,
    ratio_p_value_of_strata,
)
from sizes import mostly_slow


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_with_two_arms_it_is_the_binomial_law_mixed_over_a_beta_law(share: float) -> None:
    counts, k = np.array([130.0, 30.0]), 50.0

    def likelihood(p: float) -> float:
        ratio = counts[0] * np.log((1 - p) / (1 - share)) + counts[1] * np.log(p / share)
        return float(np.exp(ratio) * stats.beta.pdf(p, k * share, k * (1 - share)))

    evidence = integrate.quad(likelihood, 0, 1, points=[30 / 160], epsabs=0, epsrel=1e-10)[0]
    found = ratio_p_value(counts, np.array([1 - share, share]), priors=[k])
    assert float(found) == pytest.approx(min(1, 1 / evidence), rel=1e-8)


def test_its_mean_over_all_outcomes_is_one() -> None:
    """Of three arms and five records: a martingale's law, where 1/E is not cut at 1."""
    pi, total = np.array([0.5, 0.3, 0.2]), 0.0
    for a in range(6):
        for b in range(6 - a):
            counts = np.array([a, b, 5 - a - b])
            p = float(ratio_p_value(counts * 1.0, pi, priors=[3.0]))
            bound = max(1.0, 1 / p)  # E, or 1 where E is below
            total += stats.multinomial.pmf(counts, 5, pi) * (bound if p < 1 else 0)
    assert total <= 1
    assert total > 0.5


def test_sound_trials_are_hardly_ever_alarmed_and_broken_ones_are() -> None:
    rng = np.random.default_rng(1)
    for pi in ([0.5, 0.5], [0.9, 0.1], [0.5, 0.3, 0.2]):
        steps = rng.multinomial(50, pi, (1_000, 200)).cumsum(axis=1).astype(float)
        alarmed = ratio_p_value(steps, np.array(pi)).min(axis=1)
        assert np.mean(alarmed < 0.001) <= 0.005
        assert np.mean(alarmed < 0.05) <= 0.06
    broken = rng.multinomial(50, [0.53, 0.47], (100, 400)).cumsum(axis=1).astype(float)
    assert np.mean(ratio_p_value(broken, np.array([0.5, 0.5])).min(axis=1) < 0.001) > 0.95


def looked_at(rng: Any, trials: int, looks: int, units: int, pi: Any, groups: int = 128) -> Any:
    """Records by trial, look, arm and group: units with ten records each on average, in one arm each."""
    arm = rng.choice(len(pi), (trials, units), p=pi)
    group = rng.integers(0, groups, (trials, units))
    rate = rng.gamma(1.0, 10.0 / looks, (trials, units))
    place = (np.arange(trials)[:, None] * len(pi) + arm) * groups + group
    steps = [np.bincount(place.ravel(), rng.poisson(rate).ravel(), trials * len(pi) * groups) for _ in range(looks)]
    return np.cumsum(steps, axis=0).reshape(looks, trials, len(pi), groups)


@pytest.mark.parametrize("pi", mostly_slow([[0.5, 0.5], [0.85, 0.15], [0.5, 0.3, 0.2]], [0.85, 0.15]))
def test_units_with_many_records_are_hardly_ever_alarmed(pi: list[float]) -> None:
    rng = np.random.default_rng(2)
    seen = looked_at(rng, 300, 40, 800, pi)
    smallest = np.nanmin(ratio_p_value_of_groups(seen, np.array(pi)), axis=0)
    assert np.mean(smallest < 0.001) <= 0.01
    assert np.mean(smallest < 0.05) <= 0.06
    by_record = ratio_p_value(seen.sum(axis=-1), np.array(pi)).min(axis=0)
    assert np.mean(by_record < 0.05) > 0.1


def test_records_that_an_arm_loses_are_found() -> None:
    seen = looked_at(np.random.default_rng(3), 50, 5, 20_000, [0.56, 0.44])
    assert np.mean(ratio_p_value_of_groups(seen, np.array([0.5, 0.5])).min(axis=0) < 0.001) > 0.95


def test_few_groups_and_no_records_have_no_p_value_and_the_arms_order_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    records, pi = rng.poisson(30.0, (3, 64)).astype(float), np.array([0.5, 0.3, 0.2])
    p = ratio_p_value_of_groups(records, pi)
    assert ratio_p_value_of_groups(records[::-1], pi[::-1]) == pytest.approx(p)
    assert ratio_p_value_of_groups(np.pad(records, ((0, 0), (0, 64))), pi) == pytest.approx(p)
    assert np.isnan(ratio_p_value_of_groups(records[:, : LEAST_GROUPS_OVER_TIME - 1], pi))
    assert np.isnan(ratio_p_value_of_groups(np.zeros((3, 64)), pi))
    assert ratio_p_value(np.zeros(3), pi) == 1


def test_a_large_departure_in_a_small_trial_is_found() -> None:
    assert float(ratio_p_value(np.array([100.0, 40.0]), np.array([0.5, 0.5]))) < 0.001


def test_strata_are_tested_together_and_apart() -> None:
    """Over many looks: sound strata hardly ever alarm; errors that all share, and errors that cancel, do."""
    rng = np.random.default_rng(5)
    pi = rng.choice([0.1, 0.5, 0.8], 60)[:, None] * [0, 1]
    pi[:, 0] = 1 - pi[:, 1]

    def smallest(trials: int, true: Any) -> Any:
        steps = np.array([[rng.multinomial(10, p, trials) for p in true] for _ in range(20)], dtype=float)
        seen = steps.cumsum(axis=0).transpose(2, 0, 1, 3)
        return np.array([min(ratio_p_value_of_strata(look, pi) for look in trial) for trial in seen])

    sound = smallest(200, pi)
    assert np.mean(sound < 0.001) <= 0.01
    assert np.mean(sound < 0.05) <= 0.08
    shared = np.clip(pi + np.array([0.05, -0.05]), 0.01, 0.99)
    assert np.mean(smallest(20, shared / shared.sum(axis=1, keepdims=True)) < 0.001) > 0.9
    few = pi[:2]
    counts = 600 * np.clip(few + np.array([[0.1, -0.1], [-0.1, 0.1]]), 0, 1)
    assert ratio_p_value_of_strata(counts, few) < 0.001


def test_groups_that_do_not_vary_tell_nothing_of_chance() -> None:
    unequal = np.array([[3.0], [1.0]]) * np.ones((2, 32))
    assert np.isnan(ratio_p_value_of_groups(unequal, np.array([0.5, 0.5])))
    assert float(ratio_p_value_of_groups(np.ones((2, 32)), np.array([0.5, 0.5]))) > 0.5


def test_for_one_look_it_is_a_t_test_of_the_groups() -> None:
    records = np.random.default_rng(6).poisson([[30.0], [24.0]], (2, 16)).astype(float)
    apart = records[1] - 0.4 * records.sum(axis=0)
    found = ratio_p_value_of_groups(records, np.array([0.6, 0.4]), once=True)
    assert float(found) == pytest.approx(stats.ttest_1samp(apart, 0).pvalue, rel=1e-9)
