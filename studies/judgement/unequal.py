"""Adjusted effects with unequal arms: whether adjusting ever widens the interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import foldaway as fa
from studies.judgement.design import WRONG, Design, Found, Law
from studies.judgement.reading import AROUND_ZERO, Columns, folded, leads, named, notes_of, plan

WIDTH = Law("width over the difference's", 1.01, share=False)


class Slopes(NamedTuple):
    """How much the outcome rises with the covariate in the control and under treatment, and the treated's spread."""

    control: float
    treated: float
    spread: float = 1.0


SLOPES = {
    "alike": Slopes(1, 1),
    "none": Slopes(0, 0),
    "in the control alone": Slopes(1.5, 0),
    "opposite": Slopes(1.5, -1.5),
    "opposite, treated spread more": Slopes(1, -1, 3),
}
ARMS = {
    "600, 50/50": (600, 0.5, ("alike", "opposite")),
    "3,300, 90/10": (3_300, 0.1, tuple(SLOPES)),
    "6,600, 95/5": (6_600, 0.05, ("in the control alone", "opposite")),
}
"""Each arm of at least 300 units, and the slopes with which it is tried."""

UNITS = (("alike", True), ("none", True), ("opposite", False), ("opposite", True))
"""Slopes, and whether the trial is saved, for units with two records."""


def records(n: int, treated: float, slopes: Slopes, each: int = 1) -> Any:
    """Units with a covariate whose mean is the same in both arms, so that the effect is none."""

    def simulate(rng: np.random.Generator) -> Columns:
        d, x = rng.random(n) < treated, rng.normal(size=n)
        own = np.where(d, slopes.treated, slopes.control) * x + np.where(d, slopes.spread, 1.0) * rng.normal(size=n)
        unit = np.repeat(np.arange(n), each)
        y = own[unit] + (rng.normal(size=len(unit)) if each > 1 else 0.0)
        return {"arm": named(d[unit]), "unit": unit, "x": x[unit], "y": y}

    return simulate


def study(of: fa.Plan, simulate: Any, *, saved: bool = False) -> Any:
    """A trial: its leading row, and how wide the adjusted interval is beside the plain one."""

    def trial(rng: np.random.Generator) -> Found:
        made = folded(of, simulate(rng), rng)
        if saved:
            made.dumps()
        effects = made.effects()
        ((said, row),) = leads(effects)
        error = {each.estimator: each.std_error for each in effects if each.std_error}
        both = error.get("adjusted"), error.get("difference")
        width = both[0] / both[1] if both[0] and both[1] else None
        notes = {**notes_of(said, row, AROUND_ZERO), "width over the difference's": width}
        return {"": {**notes, "adjusted leads": row.estimator == "adjusted"}}

    return trial


def designs() -> Iterator[Design]:
    """All of them."""
    laws = (WRONG, WIDTH)
    for arms, (n, treated, tried) in ARMS.items():
        for name in tried:
            trial = study(plan(treated, ["y"], covariates=["x"]), records(n, treated, SLOPES[name]))
            yield Design("adjusted", f"{arms}, slopes {name}", trial, laws)
    n, treated, _ = ARMS["3,300, 90/10"]
    by_unit = plan(treated, ["y"], covariates=["x"], unit="unit")
    for name, saved in UNITS:
        trial = study(by_unit, records(n, treated, SLOPES[name], 2), saved=saved)
        yield Design("adjusted", f"3,300 units of 2, 90/10, slopes {name}{', saved' if saved else ''}", trial, laws)
