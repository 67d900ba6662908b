"""The sample-ratio check by groups: uniform over sound trials of uneven units, and awake where the ratio is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from foldaway.inference.sample_ratio import SampleRatio, sample_ratio_of_groups

PI = np.array([0.5, 0.3, 0.2])


def group_ratio(records: Any, pi: Any) -> SampleRatio:
    return sample_ratio_of_groups(records, dict(zip("abc", pi, strict=False)))


def counts(seed: int, pi: Any = PI, units: int = 2000, busier: float = 1.0) -> Any:
    """Records by arm and group, of units that have from one to some hundred each."""
    rng = np.random.default_rng(seed)
    size = np.ceil(rng.lognormal(1, 1, units))
    arm, group = rng.choice(len(pi), units, p=pi), rng.integers(0, 64, units)
    size = np.where(arm == len(pi) - 1, np.ceil(busier * size), size)
    return np.bincount(arm * 64 + group, size, 64 * len(pi)).reshape(len(pi), 64)


@pytest.mark.parametrize("pi", [PI, np.array([0.9, 0.1])])
def test_p_values_are_uniform_over_sound_trials(pi: Any) -> None:
    found = [group_ratio(counts(seed, pi), pi).p_value for seed in range(400)]
    assert stats.kstest(np.array(found, float), "uniform").pvalue > 0.001
    by_record = [stats.chisquare(c.sum(axis=1), pi * c.sum()).pvalue for c in map(counts, range(40), [pi] * 40)]
    assert np.mean(np.array(by_record) < 0.001) > 0.2  # what counting records as units would say


def test_a_broken_ratio_and_a_busier_arm_are_found() -> None:
    broken = [group_ratio(counts(seed, np.array([0.5, 0.36, 0.14])), PI) for seed in range(20)]
    busier = [group_ratio(counts(seed, busier=1.6), PI) for seed in range(20)]
    for found in (*broken, *busier):
        assert found.test == "groups"
        assert found.p_value is not None
        assert found.p_value < 0.01


def test_with_two_arms_it_is_a_t_test_of_the_groups() -> None:
    records = counts(3, np.array([0.6, 0.4]))
    apart = records[1] - 0.4 * records.sum(axis=0)
    assert group_ratio(records, np.array([0.6, 0.4])).p_value == pytest.approx(
        stats.ttest_1samp(apart, 0).pvalue, rel=1e-9
    )


def test_few_groups_tell_nothing() -> None:
    for few, pi in ((counts(1)[:, :6], PI), (np.ones((2, 16)), np.array([0.5, 0.5])), (np.ones((2, 16)), PI[:2])):
        assert group_ratio(few, pi).test != "groups"
    unequal = np.array([[3.0], [1.0]]) * np.ones((2, 16))
    assert group_ratio(unequal, np.array([0.5, 0.5])).state == "open"
