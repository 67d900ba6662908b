"""Products of four, against the plain sums of outer products."""

from __future__ import annotations

import numpy as np
import pytest

from foldaway.numerics.block import Floats
from foldaway.tallies.moments.quartic import record_products


def plain(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    i, j = np.triu_indices(len(x))
    v = x[i] * x[j]
    s = [x * outcome for outcome in y]
    return v @ v.T, np.array([v @ one.T for one in s]), np.array([one @ one.T for one in s])


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("outcomes", [1, 2, 3])
@pytest.mark.parametrize("n", [83, 2048, 2049, 4500])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_sums_are_the_plain_ones(k: int, outcomes: int, n: int, compiled: bool) -> None:
    rng = np.random.default_rng(100 * k + outcomes)
    x, y = rng.normal(1, 1, size=(k, n)), rng.normal(size=(outcomes, n))
    size = plain(np.abs(x), np.abs(y))
    for ours, theirs, scale in zip(record_products(x, y, compiled=compiled), plain(x, y), size, strict=True):
        assert ours.shape == theirs.shape
        assert np.all(np.abs(ours - theirs) <= 1e-13 * scale)


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("compiled", [False, True])
def test_one_record_and_none(k: int, compiled: bool) -> None:
    rng = np.random.default_rng(k)
    x, y = rng.normal(size=(k, 1)), rng.normal(size=(2, 1))
    for ours, theirs in zip(record_products(x, y, compiled=compiled), plain(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    for ours in record_products(x[:, :0], y[:, :0], compiled=compiled):
        assert not ours.any()


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 12])
def test_each_product_of_four_is_told_from_every_other(k: int) -> None:
    """With powers of distinct primes for values, two products agree only if they are the same product."""
    primes = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37], dtype=np.float64)[:k]
    x = np.column_stack([primes, np.ones(k)])
    vv, _, _ = record_products(x, np.ones((1, 2)))
    i, j = np.triu_indices(k)
    v = primes[i] * primes[j]
    np.testing.assert_array_equal(vv, np.outer(v, v) + 1)


def test_inputs_are_left_alone() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(4, 50)), rng.normal(size=(2, 50))
    before = x.copy(), y.copy()
    record_products(x, y)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])
