"""Numbers that belong together: compliers beside adjusted rows, and a trial before and after it is saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import foldaway as fa
from foldaway.effects import Effect
from studies.judgement.design import Design, Found, Law
from studies.judgement.reading import Columns, folded, named, plan

RATIO = Law("compliers apart from the ratio", 0.01, share=False)
MOVED = Law("moved by saving", 0.1, share=False)


def offers(rng: np.random.Generator, units: int) -> Columns:
    """Half of those who are offered the treatment take it up, and gain by it."""
    d, x = rng.random(units) < 0.5, rng.normal(size=units)
    took = d & (rng.random(units) < 0.5 + 0.2 * np.tanh(x))
    y = 1.5 * x + took + rng.normal(size=units)
    return {
        "arm": named(d),
        "unit": np.arange(units),
        "x": x,
        "took": took.astype(float),
        "uptake": took.astype(float),
        "y": y,
    }


def row(effects: fa.Effects, outcome: str, estimator: str) -> Effect:
    """One of them."""
    return next(each for each in effects if (each.outcome, each.estimator) == (outcome, estimator))


def compliers(units: int, *, saved: bool) -> Any:
    """A trial: how far its compliers' effect is from the ratio of the rows beside it, in standard errors."""
    of = plan(0.5, ["y", "uptake"], unit="unit", covariates=["x"], received="took")

    def trial(rng: np.random.Generator) -> Found:
        made = folded(of, offers(rng, units), rng)
        if saved:
            made.dumps()
        effects = made.effects()
        ours = row(effects, "y", "compliers")
        above, below = (row(effects, outcome, "adjusted").estimate for outcome in ("y", "uptake"))
        if ours.estimate is None or not ours.std_error or above is None or not below:
            return {"": {"compliers apart from the ratio": None}}
        return {"": {"compliers apart from the ratio": abs(ours.estimate - above / below) / ours.std_error}}

    return trial


def saving(schools: int, pupils: int) -> Any:
    """A trial of schools: how far saving moves its adjusted effect, in standard errors."""
    of = plan(0.5, ["y"], unit="school", covariates=["x", "z"])

    def trial(rng: np.random.Generator) -> Found:
        d = rng.permutation(schools) < schools // 2
        x, z, own = rng.normal(size=(3, schools))
        school = np.repeat(np.arange(schools), 1 + rng.poisson(pupils - 1, schools))
        y = (x + 0.5 * z + own)[school] + rng.normal(size=len(school))
        noise = rng.normal(size=(2, len(school)))
        records = {"arm": named(d[school]), "school": school, "x": x[school] + noise[0], "z": z[school] + noise[1]}
        made = folded(of, {**records, "y": y}, rng)
        before = row(made.effects(), "y", "adjusted")
        made.dumps()
        after = row(made.effects(), "y", "adjusted")
        if before.estimate is None or after.estimate is None or not before.std_error or not after.std_error:
            return {"": {"moved by saving": None}}
        moved = abs(after.estimate - before.estimate) / before.std_error
        return {"": {"moved by saving": moved, "error over the one before": after.std_error / before.std_error}}

    return trial


def designs() -> Iterator[Design]:
    """All of them."""
    for units, saved in ((60, False), (60, True), (500, False)):
        name = f"compliers of {units} units{', saved' if saved else ''}"
        yield Design("beside", name, compliers(units, saved=saved), (RATIO,), part=0.1)
    for schools in (39, 100):
        yield Design("beside", f"{schools} schools of about 20, saved", saving(schools, 20), (MOVED,), part=0.1)
