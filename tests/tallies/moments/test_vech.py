"""The algebra of vech(x x'), against explicit outer products."""

from __future__ import annotations

import numpy as np
import pytest

from foldaway.numerics.block import Floats
from foldaway.tallies.moments.vech import lift, lift_map, pair_products, pairs

SIZES = range(1, 9)


def vech(square: Floats) -> Floats:
    """Row by row from the diagonal on, as the module says."""
    return np.concatenate([square[i, i:] for i in range(len(square))])


@pytest.mark.parametrize("k", SIZES)
def test_pairs_name_every_product_once_in_order(k: int) -> None:
    i, j = pairs(k)
    assert list(zip(i, j, strict=True)) == [(a, b) for a in range(k) for b in range(a, k)]


@pytest.mark.parametrize("k", SIZES)
def test_pair_products_are_the_outer_products(k: int) -> None:
    x = np.random.default_rng(k).normal(size=(k, 5))
    out = np.full((k * (k + 1) // 2, 5), np.nan)
    pair_products(x, out)
    for record in range(5):
        np.testing.assert_array_equal(out[:, record], vech(np.outer(x[:, record], x[:, record])))


@pytest.mark.parametrize("k", SIZES)
def test_lift_gives_a_product_of_two_linear_forms(k: int) -> None:
    rng = np.random.default_rng(k)
    u, v, x = rng.normal(size=(4, k)), rng.normal(size=(4, k)), rng.normal(size=k)
    np.testing.assert_allclose(lift(u, v) @ vech(np.outer(x, x)), (u @ x) * (v @ x), rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(lift(u, v), lift(v, u))
    np.testing.assert_array_equal(lift(u, v[0]), lift(u, np.tile(v[0], (4, 1))))


@pytest.mark.parametrize("k", SIZES)
def test_lift_map_moves_vech_as_the_map_moves_x(k: int) -> None:
    rng = np.random.default_rng(k)
    B, C, x = rng.normal(size=(k, k)), rng.normal(size=(k, k)), rng.normal(size=k)
    w = B.T @ x
    np.testing.assert_allclose(lift_map(B) @ vech(np.outer(x, x)), vech(np.outer(w, w)), rtol=1e-10, atol=1e-11)
    np.testing.assert_array_equal(lift_map(np.eye(k)), np.eye(k * (k + 1) // 2))
    np.testing.assert_allclose(lift_map(B @ C), lift_map(C) @ lift_map(B), rtol=1e-9, atol=1e-11)
