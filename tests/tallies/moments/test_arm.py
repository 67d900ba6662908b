"""The arm's frame keeps up with its records, so that no order or sharding of them costs digits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import foldaway as fa
from exact import long_regression
from foldaway.errors import StateError
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.kinds import RECORDS
from foldaway.tallies.moments.scores import Scores
from sizes import mostly_slow

N = 150
CUT = 100  # less than half of the records are still to come: the frame is not renewed for their number's sake


def regression(X: Floats, y: Floats, *cuts: int) -> fa.LeastSquares:
    fit = fa.LeastSquares([f"x{c}" for c in range(X.shape[1])])
    for start, stop in pairwise([0, *cuts, len(y)]):
        fit.fold(X[start:stop], y[start:stop])
    return fit


def merged(X: Floats, y: Floats, *cuts: int) -> fa.LeastSquares:
    parts = [regression(X[a:b], y[a:b]) for a, b in pairwise([0, *cuts, len(y)])]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole


def check(fit: fa.LeastSquares, X: Floats, y: Floats, rtol: float) -> None:
    coef, classical, robust = long_regression(X, y)
    assert np.all(np.abs(fit.coef - coef) <= rtol * np.maximum(np.abs(coef), classical))
    np.testing.assert_allclose(fit.std_error("classical"), classical, rtol=rtol)
    np.testing.assert_allclose(fit.std_error("HC0"), robust, rtol=rtol)


def response(x: Floats) -> Floats:
    rng = np.random.default_rng(1)
    return 1 + 2 * x + rng.normal(size=len(x)) * (1 + rng.uniform(size=len(x)))


def later(first: Floats | float, then: Floats | float) -> Floats:
    x = np.empty(N)
    x[:CUT], x[CUT:] = first, then
    return x


normal = np.random.default_rng(0).normal(size=N)
STREAMS = {
    "a step of 100 spreads": later(normal[:CUT], 1e2 + normal[CUT:]),
    "a step of 10,000 spreads": later(normal[:CUT], 1e4 + normal[CUT:]),
    "constant, then far away": later(1.0, 1e4 + normal[CUT:]),
    "narrow, then wide": later(3 + 1e-6 * normal[:CUT], normal[CUT:]),
    "wide, then narrow": later(1e4 * normal[:CUT], 3 + normal[CUT:]),
    "zero, then small": later(0.0, 1e-9 * normal[CUT:]),
    "zero, then tiny": later(0.0, 1e-20 * normal[CUT:]),
    "zero, then large": later(0.0, 1e9 * normal[CUT:]),
    "zero, then huge": later(0.0, 1e18 * normal[CUT:]),
    "one outlier of 10,000 spreads": np.where(np.arange(N) == 120, 1e4, normal),
}


@pytest.mark.parametrize("x", STREAMS.values(), ids=STREAMS)
def test_records_unlike_the_first_cost_no_digits(x: Floats) -> None:
    X = np.column_stack([np.ones(N), x])
    scale = np.abs(x).max()
    y = response(x / scale if scale > 1e6 or scale < 1e-3 else x)
    check(regression(X, y), X, y, 1e-11)
    check(regression(X, y, CUT), X, y, 1e-10)
    check(regression(X, y, *range(1, N)), X, y, 1e-9)


@pytest.mark.parametrize("x", STREAMS.values(), ids=STREAMS)
def test_shards_unlike_one_another_cost_no_digits(x: Floats) -> None:
    X = np.column_stack([np.ones(N), x])
    scale = np.abs(x).max()
    y = response(x / scale if scale > 1e6 or scale < 1e-3 else x)
    check(merged(X, y, CUT), X, y, 1e-10)
    check(merged(X[::-1], y[::-1], N - CUT), X, y, 1e-10)


@pytest.mark.parametrize("records", [1, 2, 3, 5])
def test_shards_of_a_few_records_cost_no_digits(records: int) -> None:
    """One shard per device: each frame is made of a handful of records."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(N), 40 + rng.normal(size=(N, 3))])
    y = response(X[:, 1])
    check(merged(X, y, *range(records, N, records)), X, y, 1e-10)


@pytest.mark.parametrize("tiny", [1e-39, 1e-60, 1e-90, 1e-200, 1e-310])
@pytest.mark.filterwarnings("error")
def test_tiny_numbers_leave_the_tallies_finite(tiny: float) -> None:
    """A number next to nothing may count as nothing, but it must not spoil what else is there."""
    rng = np.random.default_rng(3)
    rows = np.vstack([np.ones(200), tiny * rng.normal(size=200), rng.normal(size=200)])
    rows[1, :60] = 0
    arm = ArmTally.empty(Shape(2, 1), {RECORDS: Scores.empty})
    for start, stop in pairwise([0, 60, 61, 90, 200]):
        arm = arm.fold(Block(rows[:, start:stop].copy()))
    scores = arm.tallies[RECORDS]
    assert isinstance(scores, Scores)
    assert np.isfinite(arm.frame.F).all()
    assert np.isfinite(arm.factor.R).all()
    assert np.isfinite(scores.sums).all()
    R = arm.raw_factor()
    np.testing.assert_allclose((R.T @ R)[2, 2], rows[2] @ rows[2], rtol=1e-12)
    ArmTally.restore(arm.state(), arm.shape, arm.kinds)


def test_an_emptied_arm_has_the_frame_and_no_records() -> None:
    arm = ArmTally.empty(Shape(1, 1), {}).fold(Block(np.array([[1.0, 1.0], [2.0, 3.0]])))
    emptied = arm.emptied()
    assert emptied.n == 0
    assert not emptied.factor.R.any()
    np.testing.assert_array_equal(emptied.frame.F, arm.frame.F)


@pytest.mark.parametrize("fault", ["frame", "count", "tallies", "form"])
def test_what_is_no_arm_is_refused(fault: str) -> None:
    shape = Shape(1, 1)
    arm = ArmTally.empty(shape, {RECORDS: Scores.empty}).fold(Block(np.array([[1.0, 1.0], [2.0, 3.0]])))
    state = arm.state()
    if fault == "frame":
        state.frame = ArmTally.empty(shape, {}).factor.state().array  # zeros: it cannot be undone
    elif fault == "count":
        state.frame_n = -1
    elif fault == "tallies":
        state.tallies = {}
    with pytest.raises(StateError):
        ArmTally.restore([1] if fault == "form" else state, shape, arm.kinds)


# Columns that nearly depend on one another: sums of fourth order lose the fourth power of that, unless every row is
# folded in a frame that suits it.


def powers(n: int, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = 100 + rng.uniform(-1, 1, n)
    return x[:, None] ** np.arange(5), x + rng.normal(size=n) * (1 + np.abs(x - 100))


def check_robust(fit: fa.LeastSquares, X: Floats, y: Floats) -> None:
    coef, classical, robust = long_regression(X, y)
    assert np.all(np.abs(fit.coef - coef) <= 1e-7 * classical)
    np.testing.assert_allclose(fit.std_error("classical"), classical, rtol=1e-7)
    np.testing.assert_allclose(fit.std_error("HC0"), robust, rtol=1e-7)


@pytest.mark.parametrize("records", mostly_slow([1, 2, 3, 7, 40], 3))
def test_columns_that_nearly_depend_on_one_another_cost_no_robust_error_its_digits(records: int) -> None:
    X, y = powers(400, seed=4)
    cuts = range(records, len(y), records)
    check_robust(regression(X, y, *cuts), X, y)
    check_robust(merged(X, y, *cuts), X, y)


def test_nor_do_such_columns_that_few_records_have() -> None:
    """Zero but in every tenth record, one after the other: nothing says beforehand how they hang together."""
    X, y = powers(400, seed=5)
    X[np.arange(400) % 10 > 0, 2:] = 0
    X[np.arange(400) % 10 > 0, 1] = 3.0
    check_robust(regression(X, y, *range(1, 400)), X, y)
    check_robust(merged(X, y, *range(5, 400, 5)), X, y)
