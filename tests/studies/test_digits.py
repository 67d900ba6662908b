"""The digits study: solvers, sets and page."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from exact import exact_regression

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies.digits import sets, solvers  # noqa: E402

from studies import __main__ as command  # noqa: E402
from studies import findings  # noqa: E402


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], sets.Digits]:
    return {(row.set, row.solver): row for row in sets.measured(draws=1, seed=3)}


@pytest.mark.parametrize("solver", solvers.SOLVERS)
def test_an_easy_set_is_solved_by_all(solver: str) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=40)
    coef = np.linalg.solve(X.T @ X, X.T @ y)
    spread = np.linalg.inv(X.T @ X) * np.sum((y - X @ coef) ** 2) / 37
    solution = solvers.solved(solver, X, y)
    np.testing.assert_allclose(solution.coef, coef, rtol=1e-9)
    if solution.std_error is not None:
        np.testing.assert_allclose(solution.std_error, np.sqrt(np.diag(spread)), rtol=1e-9)


def test_a_solver_that_refuses_or_leaves_columns_out_has_no_digits() -> None:
    known = next(sets.nist_sets())
    nothing = np.full(len(known.coef), np.nan)
    assert sets.right(solvers.Solution(nothing, nothing), known) == (0.0, 0.0)
    assert sets.right(solvers.Solution(known.coef), known) == (16.0, None)
    assert sets.right(solvers.Solution(-known.coef), known) == (0.0, None)
    collinear = np.ones((10, 2))
    assert np.isnan(solvers.solved(solvers.RECURSION, collinear, np.arange(10.0)).coef).all()
    assert np.isnan(solvers.solved("foldaway, by row", collinear, np.arange(10.0)).coef).all()


def test_the_rational_truth_is_that_of_a_regression_done_by_hand() -> None:
    X, y = np.array([[1.0, 0], [1, 1], [1, 2], [1, 3]]), np.array([1.0, 3, 2, 5])
    coef, std_error = exact_regression(X, y)  # slope 11/10, rss 27/10, squares about the mean of x 5
    np.testing.assert_allclose(coef, [1.1, 1.1], rtol=1e-15)
    np.testing.assert_allclose(std_error, np.sqrt([1.35 * 14 / 20, 1.35 / 5]), rtol=1e-15)


def test_every_set_meets_every_solver(found: dict[tuple[str, str], sets.Digits]) -> None:
    assert len(found) == (7 + 2 + 5) * len(solvers.SOLVERS)
    assert all(0 <= row.coef <= 16 for row in found.values())


def test_longley_and_large_means_tell_solvers_apart(found: dict[tuple[str, str], sets.Digits]) -> None:
    for way in solvers.FOLDAWAY:
        assert found["Longley", way].coef > 10
        assert found["large means", way].coef > 12
    for poor in ("normal equations", solvers.RECURSION):
        assert found["Longley", poor].coef < 9
        assert found["large means", poor].coef < 4


@pytest.mark.slow
def test_the_page_is_the_same_in_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for folder in ("a", "b"):
        monkeypatch.setattr(findings, "PAGES", tmp_path / folder)
        command.main(["digits", "--draws", "1", "--write"])
        written.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert written[0] == written[1]
    assert sorted(written[0]) == ["digits.md", "digits.svg"]
    text = written[0]["digits.md"].decode()
    assert "](digits.svg)" in text
    assert "python -m studies digits --draws 1 --seed 1`" in text
    assert len([line for line in text.splitlines() if line.startswith("| foldaway, by row")]) == 2
