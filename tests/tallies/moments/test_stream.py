"""Rows one at a time through compiled code: the same tallies, and nothing else touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldaway as fa
from exact import long_regression
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.tallies.moments.arm import ArmTally, Kinds
from foldaway.tallies.moments.kinds import RECORDS, UNITS
from foldaway.tallies.moments.scores import Scores, UnitScores
from foldaway.tallies.moments.stream import WORTH_COMPILING, RowStream

SHAPE = Shape(3, 1)
ROBUST: Kinds = {RECORDS: Scores.empty, UNITS: UnitScores.empty}


def table(n: int, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    rows = rng.normal(np.array([[0.0], [3.0], [-20.0], [100.0]]), 1, (4, n))
    rows[0] = 1
    return rows


@pytest.mark.parametrize("kinds", [{}, ROBUST], ids=["plain", "robust"])
@pytest.mark.parametrize("start", [WORTH_COMPILING, 300])
def test_the_tallies_are_those_of_blocks(kinds: Kinds, start: int) -> None:
    """Long enough for several new frames on the way."""
    rows = table(700)
    first = ArmTally.empty(SHAPE, kinds).fold(Block(rows[:, :start].copy()))
    kept = first.state()
    stream = RowStream(first)
    for row in rows[:, start:].T:
        assert stream.take(row[:3], row[3])
    ours, theirs = stream.tally(), first.fold(Block(rows[:, start:].copy()))
    assert first.state() == kept
    assert ours.n == theirs.n == 700
    assert ours.frame.n > 350
    moved = theirs.rebase(ours.frame)
    np.testing.assert_allclose(ours.factor.R.T @ ours.factor.R, moved.factor.R.T @ moved.factor.R, atol=1e-9)
    assert ours.tallies.keys() == theirs.tallies.keys()
    if kinds:
        one, other = ours.tallies[RECORDS], moved.tallies[RECORDS]
        assert isinstance(one, Scores)
        assert isinstance(other, Scores)
        assert (one.n, one.clusters) == (700, 700)
        np.testing.assert_allclose(one.sums, other.sums, atol=1e-11 * np.abs(other.sums).max())
        units = ours.tallies[UNITS]
        assert isinstance(units, UnitScores)
        assert units.n == 0


REFUSED: dict[str, tuple[Any, Any]] = {
    "too long": ([1, 2, 3, 4], 1.0),
    "too short": ([1, 2], 1.0),
    "a number": (1.0, 1.0),
    "text": (["a", "b", "c"], 1.0),
    "text of the right length": ("abc", 1.0),
    "text as response": ([1, 2, 3], "abc"),
    "missing": ([1, 2, None], 1.0),
    "NaN": ([1, np.nan, 3], 1.0),
    "NaN as response": ([1, 2, 3], np.nan),
    "infinite": ([1, 2, -np.inf], 1.0),
    "too large": ([1, 2, 1e41], 1.0),
    "beyond floats": ([1, 2, 10**400], 1.0),
    "complex": ([1, 2, 3j], 1.0),
    "several rows": (np.ones((3, 3)), 1.0),
    "several responses": ([1, 2, 3], [1.0, 2.0]),
}


@pytest.mark.parametrize(("x", "y"), REFUSED.values(), ids=REFUSED)
@pytest.mark.filterwarnings("error")
def test_what_is_no_row_is_left_to_others_and_changes_nothing(x: Any, y: Any) -> None:
    stream = RowStream(ArmTally.empty(SHAPE, ROBUST).fold(Block(table(300))))
    assert stream.take([1.0, 2.0, 3.0], 4.0)
    before = stream.tally().state()
    assert not stream.take(x, y)
    assert stream.tally().state() == before


def test_a_tally_once_given_does_not_move_on() -> None:
    stream = RowStream(ArmTally.empty(SHAPE, ROBUST).fold(Block(table(300))))
    stream.take([1.0, 2.0, 3.0], 4.0)
    given = stream.tally()
    before = given.state()
    stream.take([1.0, 20.0, 3.0], 4.0)
    assert given.state() == before
    assert stream.tally().n == given.n + 1


def test_a_regression_changes_between_rows_and_blocks_as_they_come() -> None:
    rows = table(WORTH_COMPILING + 400)
    X, y = rows[:3].T, rows[3]
    fit, whole = fa.LeastSquares(list("abc")), fa.LeastSquares(list("abc"))
    cut = WORTH_COMPILING + 40
    for i in range(cut):
        fit.fold(X[i], y[i])
    other = fa.LeastSquares(list("abc"))
    other.fold(X[-100:], y[-100:])
    fit.fold(X[cut : cut + 60], y[cut : cut + 60])
    for i in range(cut + 60, len(y) - 100):
        fit.fold(X[i].tolist(), float(y[i]))
    with pytest.raises(fa.RecordError):
        fit.fold([1, np.nan, 2], 3.0)
    fit = fit + other
    whole.fold(X, y)
    assert fit.n == whole.n
    np.testing.assert_allclose(fit.coef, whole.coef, rtol=1e-11)
    for kind in ("classical", "HC0", "HC1"):
        np.testing.assert_allclose(fit.std_error(kind), whole.std_error(kind), rtol=1e-11)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_rows_unlike_those_before_cost_no_digits(far: float) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=480)
    x[300:] += far  # too few to renew the frame by their number
    X = np.column_stack([np.ones(480), x])
    y = 1 + 2 * x + rng.normal(size=480)
    fit = fa.LeastSquares(["const", "x"])
    for row, response in zip(X, y, strict=True):
        fit.fold(row, float(response))
    coef, classical, robust = long_regression(X, y)
    assert np.all(np.abs(fit.coef - coef) <= 1e-10 * np.maximum(np.abs(coef), classical))
    np.testing.assert_allclose(fit.std_error(), classical, rtol=1e-10)
    np.testing.assert_allclose(fit.std_error("HC0"), robust, rtol=1e-10)
