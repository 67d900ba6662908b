"""The study of power, on a small scale: what it draws is what its baselines say, and the promise holds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # studies/ lies beside tests/ and is no part of the package

from studies import power  # noqa: E402


@pytest.mark.parametrize(
    "case", [case for case in power.cases() if case.draw is not None][:6], ids=lambda case: case.what
)
def test_what_is_drawn_has_the_level_and_the_spread_of_its_baseline(case: power.Case) -> None:
    assert case.draw is not None
    y = case.draw(np.random.default_rng(1), np.zeros((1, 200_000), dtype=bool), 0.0)
    assert y.mean() == pytest.approx(case.baseline.level, rel=0.01)
    assert y.var() == pytest.approx(case.baseline.deviation() ** 2 * (1 - case.baseline.explained), rel=0.03)


@pytest.mark.parametrize("what", ["normal mean", "mean by units"])
def test_the_promise_holds(what: str) -> None:
    case = next(case for case in power.cases() if case.what == what)
    _, promised, simulated = power.study(case, trials=400, seed=2)
    assert simulated == pytest.approx(promised, abs=0.06)  # three standard errors
