"""The study of planned looks: its formulas are foldaway's, and a few trials already say what many do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies.planned_looks import ERRORS, OUTCOMES, POWER, Cell, cells, check, findings, first, needed, run  # noqa: E402


def test_foldaway_finds_what_the_study_computes() -> None:
    assert check(Cell("records", "skewed", "pocock", 5, 200), 3) < 1e-9


@pytest.mark.parametrize("error", ERRORS)
def test_a_few_trials_keep_error_rate_and_power(error: str) -> None:
    cell = Cell(error, "normal", "pocock", 3, 1_000)
    found = run(cell, 2_000, 5)
    assert 0.03 < found.wrong < 0.07
    assert found.power == pytest.approx(POWER, abs=0.04)
    assert found.single == pytest.approx(needed(cell), abs=0.04)
    assert found.known == pytest.approx(POWER, abs=0.05)  # an error from few groups needs a larger effect
    assert found.first == pytest.approx(first(cell), abs=0.04)
    page = findings({cell: found}, 1e-15, 2_000).page("planned_looks", "")
    assert f"{100 * found.wrong:.1f} %" in page


def test_every_outcome_and_error_is_simulated() -> None:
    assert {(cell.error, cell.outcome) for cell in cells()} == {(e, o) for e in ERRORS for o in OUTCOMES}
