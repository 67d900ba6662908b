"""The compiled sums and frames, against NumPy's; which of the two serves a block changes nothing beyond rounding."""

from __future__ import annotations

import numpy as np
import pytest

import foldaway as fa
import foldaway.records.batch
from foldaway.numerics import linalg
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.kernels import moments
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.scores import Scores


def rows_of(K: int, n: int, level: float = 0.0) -> Floats:
    rows = np.random.default_rng(K * n).normal(level, 1, (K, n))
    rows[0] = 1
    return rows


@pytest.mark.parametrize("K", [1, 2, 3, 6, 11])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_the_gram_matrix_is_the_plain_one(K: int, n: int) -> None:
    rows = rows_of(K, n)
    np.testing.assert_allclose(moments.gram(rows), rows @ rows.T, rtol=1e-13, atol=1e-13 * n)


@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_gram_matrices_by_cell_are_those_of_the_cells_rows(K: int, n: int) -> None:
    rng = np.random.default_rng(K)
    rows, cell = rng.normal(size=(K, n)), rng.integers(0, 5, n)
    grams = np.ones((6, K, K))  # they are added to what is there
    moments.add_grams(rows, cell, grams)
    for c in range(6):
        z = rows[:, cell == c]
        np.testing.assert_allclose(grams[c], 1 + z @ z.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("K", [1, 2, 5, 9])
@pytest.mark.parametrize("n", [1, 255, 256, 513])
@pytest.mark.parametrize("level", [0.0, 1e9])
def test_rows_are_framed_as_lapack_frames_them(K: int, n: int, level: float) -> None:
    rows = rows_of(K, n, level)
    F = np.asfortranarray(np.triu(np.random.default_rng(K).normal(size=(K, K))) + 3 * np.eye(K))
    F[0, 0], F[0, 1:] = 1, level
    framed = moments.frame_rows(F, rows)
    np.testing.assert_allclose(framed, linalg.frame_rows(F, rows.T).T, rtol=1e-12, atol=1e-13)


def test_a_level_is_taken_out_without_an_error() -> None:
    rows = rows_of(2, 400, 1e12)
    framed = moments.frame_rows(np.asfortranarray([[1.0, 1e12], [0.0, 1.0]]), rows)
    np.testing.assert_array_equal(framed[1], rows[1] - 1e12)


def test_an_arm_folded_either_way_is_the_same() -> None:
    shape, raw = Shape(4, 2), rows_of(6, 5000, 30.0)
    weight = np.random.default_rng(1).uniform(0.5, 2, 5000)
    empty = ArmTally.empty(shape, {"records": Scores.empty})
    plain, swift = (empty.fold(Block(raw, weight, compiled=compiled)) for compiled in (False, True))
    swift = swift.rebase(plain.frame)
    np.testing.assert_allclose(swift.factor.R.T @ swift.factor.R, plain.factor.R.T @ plain.factor.R, atol=1e-9)
    ours, theirs = (tally.tallies["records"] for tally in (swift, plain))
    assert isinstance(ours, Scores)
    assert isinstance(theirs, Scores)
    np.testing.assert_allclose(ours.sums, theirs.sums, rtol=1e-11, atol=1e-11 * np.abs(theirs.sums).max())


def test_a_regression_is_the_same_with_and_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(3000), rng.normal(1e6, 1, (3000, 3))])
    y = X[:, 1:].sum(axis=1) + rng.normal(size=3000) * X[:, 1] / 1e6
    fits = []
    for worth in (1, 10**9):
        monkeypatch.setattr(foldaway.records.batch, "WORTH_COMPILING", worth)
        fit = fa.LeastSquares(["const", "a", "b", "c"])
        fit.fold(X[:1000], y[:1000])
        fit.fold(X[1000:], y[1000:])
        fits.append((fit.coef, fit.std_error("HC1"), fit.rss))
    for swift, plain in zip(*fits, strict=True):
        np.testing.assert_allclose(swift, plain, rtol=1e-10)
