"""Frames: what they do to rows, how one changes into another, and that one always exists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldaway.numerics.block import Block, Floats, Shape
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.factor import Factor
from foldaway.tallies.moments.frame import Frame


def table(seed: int, shape: Shape, n: int) -> Floats:
    """Rows z = [1, x, y] with means and scales of their own, K by n."""
    rng = np.random.default_rng(seed)
    means, spreads = rng.normal(0, 5, (shape.columns, 1)), 10.0 ** rng.uniform(-2, 2, (shape.columns, 1))
    rows = rng.normal(means, spreads, (shape.columns, n))
    rows[0] = 1
    return rows


def frame_of(rows: Floats, shape: Shape) -> Frame:
    return Frame.of(Factor.empty(shape).fold(Block(rows)).R, shape, rows.shape[1])


seeds = st.integers(0, 2**32 - 1)
shapes = st.builds(Shape, st.integers(1, 5), st.integers(1, 3))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds, shapes)
def test_its_own_rows_become_orthonormal_and_outcomes_uncorrelated_with_regressors(seed: int, shape: Shape) -> None:
    k, n = shape.regressors, 200
    rows = table(seed, shape, n)
    framed = frame_of(rows, shape).apply(Block(rows)).rows
    gram = framed @ framed.T / n
    np.testing.assert_allclose(gram[:k, :k], np.eye(k), atol=1e-9)
    np.testing.assert_allclose(gram[:k, k:], 0, atol=1e-9)
    np.testing.assert_allclose(np.diag(gram), 1, atol=1e-9)
    np.testing.assert_array_equal(framed[0], 1)  # the intercept stays what it is


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds, shapes)
def test_outcomes_do_not_mix(seed: int, shape: Shape) -> None:
    rows = table(seed, shape, 50)
    k = shape.regressors
    F = frame_of(rows, shape).F
    assert not np.tril(F, -1).any()
    np.testing.assert_array_equal(F[k:, k:], np.diag(np.diag(F[k:, k:])))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds, shapes, st.integers(1, 30))
def test_the_frame_undoes_itself_and_changes_exactly(seed: int, shape: Shape, n: int) -> None:
    rows = table(seed, shape, n)
    one, other = frame_of(table(seed + 1, shape, 60), shape), frame_of(table(seed + 2, shape, 70), shape)
    framed = one.apply(Block(rows)).rows
    np.testing.assert_allclose(framed.T @ one.F, rows.T, rtol=1e-9, atol=1e-9 * np.abs(rows).max())
    B = one.change_to(other)
    assert not np.tril(B, -1).any()
    expected = other.apply(Block(rows)).rows
    np.testing.assert_allclose(framed.T @ B, expected.T, rtol=1e-7, atol=1e-7 * np.abs(expected).max())
    np.testing.assert_allclose(one.change_to(one), np.eye(shape.columns), atol=1e-12)


def test_one_row_is_framed_as_many_are() -> None:
    shape = Shape(4, 2)
    rows = table(3, shape, 30)
    frame = frame_of(rows, shape)
    single = np.column_stack([frame.apply(Block(rows[:, i : i + 1])).rows for i in range(30)])
    np.testing.assert_allclose(single, frame.apply(Block(rows)).rows, rtol=1e-9, atol=1e-10)


def test_weights_enter_by_their_roots_and_nothing_given_is_touched() -> None:
    shape = Shape(3, 1)
    rows, weight = table(4, shape, 20), np.linspace(0.1, 4, 20)
    unit = np.repeat(np.arange(10), 2)
    frame = frame_of(rows, shape)
    F, kept = frame.F.copy(), rows.copy()
    framed = frame.apply(Block(rows, weight, unit))
    np.testing.assert_allclose(framed.rows, frame.apply(Block(rows)).rows * np.sqrt(weight), rtol=1e-14)
    assert framed.weight is None
    np.testing.assert_array_equal(framed.unit, unit)
    np.testing.assert_array_equal(rows, kept)
    np.testing.assert_array_equal(frame.F, F)
    np.testing.assert_array_equal(weight, np.linspace(0.1, 4, 20))


@pytest.mark.parametrize("shift", [1e3, 1e6, 1e9, 1e12])
def test_a_level_is_taken_out_without_a_rounding_error_of_its_own(shift: float) -> None:
    """y − c is exact for numbers this close: a framed value must not carry errors of the level's size."""
    rng = np.random.default_rng(5)
    rows = np.vstack([np.ones(300), rng.normal(size=(3, 300)), shift + rng.normal(size=300)])
    shape = Shape(4, 1)
    frame = frame_of(rows, shape)
    # The same by hand, level first, with more digits than doubles have.
    F = frame.F.astype(np.longdouble)
    truth = rows.astype(np.longdouble)
    for j in range(5):
        for m in range(j):
            truth[j] -= F[m, j] * truth[m]
        truth[j] /= F[j, j]
    error = np.abs(frame.apply(Block(rows)).rows - truth).max()
    assert error < 1e-13


# Where the rows do not give a direction to every column.

DEGENERATE = {
    "a single record": np.array([[1.0], [5.0], [-2.0], [3.0]]),
    "a single record of zeros": np.zeros((4, 1)),
    "zeros": np.zeros((4, 9)),
    "first column zero": np.vstack([np.zeros(9), np.random.default_rng(0).normal(size=(3, 9))]),
    "constant covariate": np.vstack([np.ones(9), np.full(9, 7.3), np.random.default_rng(1).normal(size=(2, 9))]),
    "zero covariate": np.vstack([np.ones(9), np.zeros(9), np.random.default_rng(1).normal(size=(2, 9))]),
    "covariate twice": np.random.default_rng(2).normal(size=(4, 9))[[0, 1, 1, 3]],
    "constant outcome": np.vstack([np.ones(9), np.random.default_rng(3).normal(size=(2, 9)), np.full(9, 1e6)]),
    "outcome of zeros": np.vstack([np.ones(9), np.random.default_rng(3).normal(size=(2, 9)), np.zeros(9)]),
    "fewer records than columns": np.random.default_rng(4).normal(size=(4, 2)),
    "large constants": np.vstack([np.ones(9), np.full((3, 9), 1e30)]),
    "tiny numbers": np.vstack([np.ones(9), 1e-30 * np.random.default_rng(6).normal(size=(3, 9))]),
}


@pytest.mark.parametrize("rows", DEGENERATE.values(), ids=DEGENERATE)
def test_there_is_always_a_frame_that_can_be_undone(rows: Floats) -> None:
    shape = Shape(3, 1)
    frame = frame_of(rows, shape)
    assert np.isfinite(frame.F).all()
    assert np.all(np.diag(frame.F) != 0)
    framed = frame.apply(Block(rows)).rows
    assert np.isfinite(framed).all()
    assert np.abs(framed).max() <= 10  # no direction is blown up that is only rounding
    scale = np.abs(rows).max(axis=1, keepdims=True)
    assert np.all(np.abs(frame.F.T @ framed - rows) <= 1e-12 * scale)


@pytest.mark.parametrize("rows", DEGENERATE.values(), ids=DEGENERATE)
def test_what_begins_without_directions_still_ends_up_right(rows: Floats) -> None:
    """Good rows after the degenerate ones: the factor is that of all rows."""
    shape = Shape(3, 1)
    more = np.random.default_rng(8).normal(size=(4, 60)) * np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-30)
    everything = np.hstack([rows, more])
    arm = ArmTally.empty(shape, {}).fold(Block(rows))
    for i in range(0, 60, 7):
        arm = arm.fold(Block(more[:, i : i + 7].copy()))
    R = arm.raw_factor()
    scale = np.linalg.norm(everything, axis=1)
    assert np.all(np.abs(R.T @ R - everything @ everything.T) <= 1e-11 * np.outer(scale, scale))
