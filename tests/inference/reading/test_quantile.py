"""Quantiles from histograms: NumPy's of kept rows, errors by hand, and many trials in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from foldaway.inference.reading.quantile import LEAST_BEYOND, Binned, quantiles
from foldaway.plan.outcomes import Bins

BINS = Bins("y", 0.01, 1_000, 0.01)
GROUPS = 16


def counted(y: Any, arm: Any, group: Any, weight: Any = None) -> Binned:
    """The histogram of rows in two arms."""
    counts = np.zeros((2, GROUPS, BINS.number))
    bins = BINS.of(y)
    np.add.at(counts, (arm, group, bins), 1.0 if weight is None else weight)
    squares = None
    if weight is not None:
        squares = np.zeros((2, BINS.number))
        np.add.at(squares, (arm, bins), weight**2)
    return Binned(counts, BINS.edges, squares)


def rows(seed: int, n: int = 6_000) -> tuple[Any, Any, Any]:
    """Values that are alike within groups, their arms, and their groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, GROUPS, n)
    return rng.lognormal(0.2 * rng.normal(size=GROUPS)[group], 1.0, n), rng.integers(0, 2, n), group


@pytest.mark.parametrize("p", [0.01, 0.25, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("by_group", [False, True])
def test_quantiles_are_numpys_to_the_resolution(p: float, by_group: bool) -> None:
    y, arm, group = rows(1)
    found = quantiles(counted(y, arm, group), p, by_group=by_group)
    expected = [np.quantile(y[arm == a], p, method="inverted_cdf") for a in (0, 1)]
    np.testing.assert_allclose(found.levels.value, expected, rtol=BINS.resolution)
    assert not (found.outside | found.few).any()


def test_the_error_is_how_far_woodruffs_interval_reaches_by_groups_of_kept_rows() -> None:
    """Over all values y of the rows: from min {F + t √V ≥ p} to max {F − t √V ≤ p}, each arm by itself."""
    y, arm, group = rows(2)
    p = 0.8
    found = quantiles(counted(y, arm, group), p, by_group=True).levels
    errors = []
    for a in (0, 1):
        own, of = y[arm == a], group[arm == a]
        values = np.sort(own)
        below = np.array([(own[of == g] <= values[:, None]).sum(axis=1) for g in range(GROUPS)])
        sizes = np.bincount(of, minlength=GROUPS)
        F = np.arange(1, len(values) + 1) / len(values)
        away = (below - sizes[:, None] * F) / len(values)
        V = (away**2 / (1 - sizes / len(values))[:, None]).sum(axis=0)
        t = stats.t.isf(stats.norm.sf(2), 1 / ((sizes / len(values)) ** 2).sum() - 1)
        ends = values[F + t * np.sqrt(V) >= p].min(), values[F - t * np.sqrt(V) <= p].max()
        errors.append((ends[1] - ends[0]) / 4)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), errors, rtol=0.025)
    assert found.covariance[0, 1] == found.covariance[1, 0] == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_independent_records_have_the_error_of_a_share(weighted: bool) -> None:
    """For a uniform outcome the quantile moves as the share does: p(1 − p)/n is its variance, n by Kish's measure."""
    n = 40_000
    y = 1 + (np.arange(n) + 0.5) / n
    arm = np.arange(n) % 2
    weight = 1.0 + np.arange(n) % 3 if weighted else None
    effective = n / 2 if weight is None else weight.sum() ** 2 / (weight**2).sum() / 2
    for p in (0.1, 0.5, 0.95):
        found = quantiles(counted(y, arm, 0 * arm, weight), p, by_group=False).levels
        np.testing.assert_allclose(np.diag(found.covariance), p * (1 - p) / effective, rtol=0.02)
        assert found.covariance[0, 1] == 0


def test_weights_count_like_repeated_records() -> None:
    y, arm, group = rows(3)
    weight = np.random.default_rng(4).integers(1, 4, len(y)).astype(float)
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted, repeated = counted(y, arm, group, weight), counted(y[again], arm[again], group[again])
    for p in (0.3, 0.9):
        one, two = (quantiles(each, p, by_group=True).levels for each in (weighted, repeated))
        np.testing.assert_allclose(one.value, two.value, rtol=1e-12)
        np.testing.assert_allclose(one.covariance, two.covariance, rtol=1e-9)


def test_many_trials_are_read_in_one_call() -> None:
    each = [counted(*rows(seed, 900)) for seed in range(5)]
    both = Binned(np.stack([one.counts for one in each]), BINS.edges)
    for by_group in (False, True):
        together = quantiles(both, 0.95, by_group=by_group)
        for i, one in enumerate(each):
            alone = quantiles(one, 0.95, by_group=by_group)
            np.testing.assert_array_equal(together.levels.value[i], alone.levels.value)
            np.testing.assert_allclose(together.levels.covariance[i], alone.levels.covariance, rtol=1e-12)
            np.testing.assert_array_equal(together.few[i], alone.few)


@pytest.mark.filterwarnings("error")
def test_what_cannot_be_told_is_marked() -> None:
    y, arm, group = rows(5)
    beyond = quantiles(counted(np.where(arm == 1, 1e4, y), arm, group), 0.5, by_group=True)
    assert beyond.outside.tolist() == [False, True]
    assert np.isnan(beyond.levels.value[1])
    few = np.flatnonzero(arm == 1)[:100]
    chosen = np.concatenate([np.flatnonzero(arm == 0), few])
    some = counted(y[chosen], arm[chosen], group[chosen])
    assert quantiles(some, 0.95, by_group=False).few.tolist() == [False, True]
    assert quantiles(some, 1 - LEAST_BEYOND / 100 - 0.02, by_group=False).few.tolist() == [False, False]
    assert quantiles(some, 0.95, by_group=True).few.tolist() == [False, True]
    empty = quantiles(counted(y[arm == 0], arm[arm == 0], group[arm == 0]), 0.5, by_group=True)
    assert not empty.outside.any()
    assert not empty.few.any()
    assert np.isnan(empty.levels.value[1])
