"""The compiled sums by cell, against NumPy's; which of the two serves changes nothing beyond rounding."""

from __future__ import annotations

import numpy as np
import pytest

from foldaway.numerics import cell_sums
from foldaway.numerics.block import CellPiece
from foldaway.numerics.cell_sums import CellSums
from foldaway.numerics.kernels import sums

CELLS, GROUPS = 8, 4


@pytest.mark.parametrize("tilde", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_the_sums_are_those_of_numpy(n: int, missing: bool, weighted: bool, tilde: bool) -> None:
    rng = np.random.default_rng(n)
    y, ty = rng.normal(size=(2, 2, n))
    if missing:
        y[rng.random((2, n)) < 0.2] = np.nan
    cell, weight = rng.integers(0, CELLS, n), rng.uniform(0.5, 2, n) if weighted else None
    piece = CellPiece(cell, y, ty if tilde else None, weight)
    about = rng.normal(size=(CELLS // GROUPS, 2, 2))
    both = []
    for add in (sums.add_sums, cell_sums.add_sums):
        to = CellSums.zeros(CELLS // GROUPS, GROUPS, 2, adjusted=tilde, weighted=weighted, missing=missing)
        to.total[:] = to.second[:] = 1  # they are added to what is there
        add(piece, about, GROUPS, missing, to)
        both.append(to)
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-11)
        assert np.isfinite(ours).all()
    joint = np.ones((2, CELLS, 1, 1 + tilde, 1 + tilde))
    for multiply, to in ((sums.add_joint, joint[0]), (cell_sums.add_joint, joint[1])):
        multiply(piece, about, GROUPS, missing, np.array([[0, 1]]), to)
    np.testing.assert_allclose(joint[0], joint[1], rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n", [1, 255, 257, 1000])
@pytest.mark.parametrize("columns", [0, 1, 5])
def test_adjusted_outcomes_are_those_of_numpy(n: int, columns: int) -> None:
    rng = np.random.default_rng(n)
    x, y = 1e9 + rng.normal(size=(columns, n)), rng.normal(size=(2, n))
    center, slopes = np.full(columns, 1e9), rng.normal(size=(2, columns))
    expected = y - slopes @ (x - center[:, None])
    np.testing.assert_allclose(sums.adjusted(x, y, center, slopes), expected, rtol=1e-12, atol=1e-13)
