"""The factor: R'R is the rows' Gram matrix, and no path to it costs digits."""

from __future__ import annotations

import numpy as np
import pytest

from exact import long_qr
from foldaway.errors import StateError
from foldaway.keeping.state import Array
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.tallies.moments.factor import Factor
from foldaway.tallies.moments.tally import CountedArray

# Tall enough for the Gram matrix to be taken, too short for it, and in between.
HEIGHTS = [1, 3, 40, 79, 80, 500]


def factor_of(columns: Floats) -> Factor:
    return Factor.empty(Shape(columns.shape[1] - 1, 1)).fold(Block(np.ascontiguousarray(columns.T)))


def diagonal_error(columns: Floats) -> float:
    """The worst relative error of R's diagonal, which is what tells how much of a column the others leave."""
    truth = np.diag(long_qr(columns)[1])
    return float(np.max(np.abs(np.abs(np.diag(factor_of(columns).R)) - truth) / truth))


@pytest.mark.parametrize("n", HEIGHTS)
def test_the_factor_is_triangular_and_that_of_the_rows(n: int) -> None:
    columns = np.random.default_rng(n).normal(size=(n, 5))
    factor = factor_of(columns)
    assert factor.n == n
    assert not np.tril(factor.R, -1).any()
    np.testing.assert_allclose(factor.R.T @ factor.R, columns.T @ columns, rtol=1e-12, atol=1e-12 * n)


@pytest.mark.parametrize("n", [100, 500, 5000])
@pytest.mark.parametrize("left", [1.0, 0.5, 0.25, 0.1, 1e-2, 1e-4, 1e-7])
def test_nearly_dependent_columns_cost_no_digits(n: int, left: float) -> None:
    """Squaring would lose the square of what is left; Householder loses only what is left."""
    rng = np.random.default_rng(5)
    columns = rng.normal(size=(n, 5))
    columns[:, 4] = columns[:, :4].sum(axis=1) + left * columns[:, 4]
    assert diagonal_error(columns) <= 2e-14 / left


@pytest.mark.parametrize("n", HEIGHTS)
def test_dependent_columns_are_found_dependent(n: int) -> None:
    columns = np.random.default_rng(n).normal(size=(n, 5))
    columns[:, 2] = columns[:, 0] - 3 * columns[:, 1]
    columns[:, 4] = 0
    factor = factor_of(columns)
    np.testing.assert_allclose(factor.R.T @ factor.R, columns.T @ columns, rtol=1e-12, atol=1e-12 * n)
    lengths = np.linalg.svd(factor.R, compute_uv=False)
    assert np.sum(lengths > 1e-13 * lengths[0]) == min(n, 3)


def test_rows_of_zeros_give_zero() -> None:
    factor = factor_of(np.zeros((200, 3)))
    assert factor.n == 200
    assert not factor.R.any()


def test_merging_costs_no_digits() -> None:
    rng = np.random.default_rng(6)
    columns = rng.normal(size=(900, 4))
    columns[:, 3] = columns[:, 0] + 1e-6 * columns[:, 3]
    merged = factor_of(columns[:300]) + factor_of(columns[300:330]) + factor_of(columns[330:])
    truth = np.diag(long_qr(columns)[1])
    np.testing.assert_allclose(np.abs(np.diag(merged.R)), truth, rtol=1e-8)
    assert merged.n == 900


def test_the_rows_and_the_old_factor_are_left_alone() -> None:
    rows = np.random.default_rng(7).normal(size=(4, 300))
    old = Factor.empty(Shape(3, 1)).fold(Block(rows[:, :100]))
    before, R = rows.copy(), old.R.copy()
    old.fold(Block(rows))
    old.fold(Block(rows[:, :2]))
    old + old
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(old.R, R)


@pytest.mark.parametrize(
    "state",
    [
        CountedArray(-1, Array.of(np.eye(2))),
        CountedArray(1, Array.of(np.ones((2, 2)))),
        CountedArray(1, Array.of(np.eye(3))),
        CountedArray(1, Array.of(np.diag([1.0, np.nan]))),
        None,
    ],
    ids=["negative count", "not triangular", "other shape", "not finite", "nothing"],
)
def test_what_is_no_factor_is_refused(state: CountedArray | None) -> None:
    with pytest.raises(StateError):
        Factor.empty(Shape(1, 1)).restored(state)
