"""Errors, intervals and tests from replicates, against other ways to compute them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import Distribution, resampled
from foldaway.inference.claim import DIFFERS, Claim
from sizes import mostly_slow


def numbered(values: Iterable[float], number: float) -> float:
    """The value of that number in rising order, from one; in between by line, and no further than the ends."""
    ordered = sorted(values)
    number = min(max(number, 1), len(ordered))
    below = int(number)
    above = min(below + 1, len(ordered))
    return float(ordered[below - 1] + (number - below) * (ordered[above - 1] - ordered[below - 1]))


finite = st.integers(-(10**9), 10**9).map(lambda thousandths: thousandths / 1000)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(finite, st.floats(1, 1e3)), min_size=2, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_summary_is_that_of_the_plain_formulas(pairs: list[tuple[float, float]], confidence: float) -> None:
    effects, levels = (pd.Series(column) for column in zip(*pairs, strict=True))
    relative = effects / levels
    found = resampled(Distribution(effects.to_numpy(), levels.to_numpy(), 3), confidence)
    size = np.abs(effects).max()
    close = partial(pytest.approx, rel=1e-9, abs=1e-9 * size)
    assert found.std_error == close(effects.std())
    assert found.relative_std_error == close(relative.std())
    for p, ends in (
        ((1 - confidence) / 2, (found.percentile_ci_lower, found.relative_percentile_ci_lower)),
        ((1 + confidence) / 2, (found.percentile_ci_upper, found.relative_percentile_ci_upper)),
    ):
        number = p * (len(effects) + 1)
        assert ends == close((numbered(effects, number), numbered(relative, number)))
    below, above = sum(e <= 0 for e in effects), sum(e >= 0 for e in effects)
    assert found.percentile_p_value == pytest.approx(
        min(1, 2 * (min(below, above) + 1) / (len(effects) + 1)), rel=1e-12
    )
    assert (found.replicates, found.replicates_left_out) == (len(effects), 3)


@pytest.mark.parametrize("shift", [0.0, 0.7, -1.5, 2.2])
def test_the_test_rejects_where_the_percentile_interval_leaves_zero_out(shift: float) -> None:
    effects = np.random.default_rng(1).normal(shift, 1, 9999)
    p = resampled(Distribution(effects, np.ones(9999), 0), 0.95).percentile_p_value
    assert p == pytest.approx(2 * stats.norm.sf(abs(shift)), abs=0.02)
    inside = resampled(Distribution(effects, np.ones(9999), 0), 1 - p + 0.002)
    outside = resampled(Distribution(effects, np.ones(9999), 0), max(1 - p - 0.002, 0))
    assert inside.percentile_ci_lower < 0 < inside.percentile_ci_upper
    if p < 0.99:
        assert not outside.percentile_ci_lower < 0 < outside.percentile_ci_upper


@pytest.mark.parametrize("count", mostly_slow([19, 39, 199], 19))
def test_another_replicate_lies_in_the_interval_as_often_as_it_should(count: int) -> None:
    """Whatever the number of replicates; without B + 1, few replicates would make short intervals."""
    draws = np.random.default_rng(2).normal(size=(2000, count + 1))
    inside = 0
    for *effects, another in draws:
        found = resampled(Distribution(np.array(effects), np.ones(count), 0), 0.9)
        inside += found.percentile_ci_lower <= another <= found.percentile_ci_upper
    assert inside / 2000 == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 2000))


def test_a_test_with_b_replicates_never_says_less_than_two_in_b_plus_1() -> None:
    assert resampled(Distribution(np.full(99, 5.0), np.ones(99), 0), 0.95).percentile_p_value == 0.02


def test_a_level_of_zero_has_no_relative_effect() -> None:
    found = resampled(Distribution(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 4.0]), 0), 0.5)
    assert found.relative_std_error == pytest.approx(np.std([1.0, 0.75], ddof=1))
    nowhere = resampled(Distribution(np.array([1.0, 2.0]), np.zeros(2), 0), 0.5)
    assert np.isnan(
        [nowhere.relative_std_error, nowhere.relative_percentile_ci_lower, nowhere.relative_percentile_ci_upper]
    ).all()
    assert nowhere.std_error == pytest.approx(np.sqrt(0.5))


def test_what_is_left_of_nothing_by_rounding_is_nothing() -> None:
    noise = 1e-16 * np.array([1.0, -2.0, 0.5, 1.5])
    found = resampled(Distribution(7.3 * noise, np.full(4, 7.3), 0), 0.95)
    assert (found.std_error, found.percentile_ci_lower, found.percentile_ci_upper, found.percentile_p_value) == (
        0,
        0,
        0,
        1,
    )
    small = resampled(Distribution(1e-12 * noise, np.full(4, 1e-13), 0), 0.95)  # small, but so is the level
    assert small.std_error > 0


@pytest.mark.parametrize("count", [0, 1])
def test_no_error_comes_from_fewer_than_two_replicates(count: int) -> None:
    with pytest.raises(EstimateError, match="fewer than two replicates"):
        resampled(Distribution(np.ones(count), np.ones(count), 500 - count), 0.95)


def test_one_sided_tests_invert_one_sided_intervals() -> None:
    effects = np.arange(-99.0, 900.0)  # 999 replicates
    below, above = Claim("less", 850.5), Claim("greater", -49.5)
    for claim, expected in ((below, 0.051), (above, 0.051), (Claim("within", 1000.0), 0.001), (DIFFERS, 0.2)):
        found = resampled(Distribution(effects, np.ones(999), 0), claim.coverage(0.949), claim)
        assert found.percentile_p_value == pytest.approx(expected, abs=0.0025)
    found = resampled(Distribution(effects, np.ones(999), 0), below.coverage(0.95), below)
    assert (found.percentile_ci_lower, found.percentile_ci_upper) == (
        -np.inf,
        np.quantile(effects, 0.95, method="weibull"),
    )
    of_less = resampled(Distribution(effects, -np.ones(999), 0), below.coverage(0.95), below)
    assert of_less.relative_percentile_ci_upper == np.inf  # a share of a number below zero falls where the effect rises
