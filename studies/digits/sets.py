"""The sets of data with their true answers, and the digits that every solver has right on each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from studies.digits.solvers import SOLVERS, Solution, solved
from studies.findings import counted

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from exact import digits, exact_regression
from hard_sets import HARD
from nist import NAMES, certified, wampler


class Known(NamedTuple):
    """Data with its true answer; a kind of hard set has several."""

    name: str
    X: Floats
    y: Floats
    coef: Floats
    std_error: Floats


class Digits(NamedTuple):
    """Digits that a solver has right on a set, at its worst number; the median over the draws of a kind."""

    set: str
    solver: str
    coef: float
    std_error: float | None


def nist_sets() -> Iterator[Known]:
    """Those in the folder, and the two that follow from them."""
    for name in NAMES:
        known = certified(name)
        yield Known(name, known.X, known.y, known.coef, known.std_error)
    for name, scale in (("Wampler4", 100), ("Wampler5", 10_000)):
        known = wampler(scale)
        yield Known(name, known.X, known.y, known.coef, known.std_error)


def hard_sets(draws: int, seed: int) -> Iterator[Known]:
    """So many of each kind, since the digits of a single one are partly luck."""
    for number, draw in enumerate(HARD):
        for time in range(draws):
            X, y = draw(np.random.default_rng([seed, number, time]))
            yield Known(draw.__name__.replace("_", " "), X, y, *exact_regression(X, y))


def measured(draws: int, seed: int) -> list[Digits]:
    """Every set with every solver."""
    sets = [*nist_sets(), *hard_sets(draws, seed)]
    found: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    for known in counted(sets, len(sets), "sets"):
        for name in SOLVERS:
            found.setdefault((known.name, name), []).append(right(solved(name, known.X, known.y), known))
    return [Digits(*about, *_median(of)) for about, of in found.items()]


def right(solution: Solution, known: Known) -> tuple[float, float | None]:
    """The right digits of coefficients and, where there are any, of standard errors; none below zero."""
    errors = solution.std_error
    return _digits(solution.coef, known.coef), None if errors is None else _digits(errors, known.std_error)


def _digits(ours: Floats, truth: Floats) -> float:
    return max(0.0, digits(ours, truth)) if np.isfinite(ours).all() else 0.0


def _median(of: list[tuple[float, float | None]]) -> tuple[float, float | None]:
    errors = [error for _, error in of if error is not None]
    return float(np.median([coef for coef, _ in of])), float(np.median(errors)) if errors else None
