"""Totals where the treatment changes how many records a unit has, and totals by segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import foldaway as fa
from studies.judgement.design import COVERS, WRONG, Design, Found, Law
from studies.judgement.reading import Columns, Simulate, Truth, folded, holds, leads, named, notes_of, plan

UNITS = 2_000
VISITS, AMOUNT = 3.0, 2.0
LEVELS = {"small": 0.3, "large": 0.7}

NO_VERDICT = Law("no verdict", 0.01)
DIFFER = Law("wrong: levels differ", 0.065)
LEVELS_COVER = Law("levels cover", 0.935, least=True)


def visits(activity: float, worth: float) -> Simulate:
    """Treated units have so many times as many records, each worth so many times as much."""

    def simulate(rng: np.random.Generator) -> Columns:
        d, own = rng.random(UNITS) < 0.5, rng.gamma(2.0, 0.5, UNITS)
        level = np.array(list(LEVELS))[(rng.random(UNITS) < LEVELS["large"]).astype(int)]
        unit = np.repeat(np.arange(UNITS), rng.poisson(VISITS * own * np.where(d, activity, 1.0)))
        y = rng.gamma(1.0, AMOUNT, len(unit)) * np.where(d[unit], worth, 1.0)
        return {"arm": named(d[unit]), "unit": unit, "level": level[unit], "y": y}

    return simulate


def whole(of: fa.Plan, simulate: Simulate, truth: Truth) -> Any:
    """A trial whose randomisation is sound: whether it gets a verdict at all."""

    def trial(rng: np.random.Generator) -> Found:
        ((said, row),) = leads(folded(of, simulate(rng), rng).effects())
        return {"": {**notes_of(said, row, truth), "no verdict": said.verdict == "no verdict"}}

    return trial


def by_level(of: fa.Plan, simulate: Simulate, effect: float | None) -> Any:
    """A trial with the same effect on the units of every level."""

    def trial(rng: np.random.Generator) -> Found:
        (segment,) = folded(of, simulate(rng), rng).effects().segments
        covers = [holds(row.ci_lower, row.ci_upper, effect) for row in segment.effects if row.segment]
        known = [each for each in covers if each is not None]
        notes = {"wrong: levels differ": bool(segment.differs), "no test of levels": segment.differs is None}
        return {"": {**notes, "levels cover": sum(known) / len(known) if known else None}}

    return trial


def designs() -> Iterator[Design]:
    """All of them."""
    per_unit = VISITS * AMOUNT
    for who, units in {"units known": UNITS, "units unknown": None}.items():
        size = UNITS if not units else 1
        settings: dict[str, Any] = {"unit": "unit"}
        made = plan(0.5, [fa.Total("y", assigned_units=units)], **settings)
        more = Truth(0.15 * per_unit * size, 0.15)
        name = f"{who}, 15 % more records"
        yield Design("totals", name, whole(made, visits(1.15, 1.0), more), (NO_VERDICT, COVERS))
        same = f"{who}, 15 % more records, each worth less"
        yield Design("totals", same, whole(made, visits(1.15, 1 / 1.15), Truth()), (WRONG, NO_VERDICT))
        level = {"column": "level", "levels": list(LEVELS)}
        split = plan(0.5, [fa.Total("y", assigned_units=units)], segments=[level], **settings)
        truth = 0.2 * per_unit if units else None
        laws = (DIFFER, LEVELS_COVER) if units else (DIFFER,)
        yield Design("totals", f"{who}, by segment, equal effects", by_level(split, visits(1.0, 1.2), truth), laws)
