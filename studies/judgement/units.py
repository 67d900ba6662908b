"""Units with many records, in every way to keep them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from studies.judgement.design import EVER, Design
from studies.judgement.reading import AROUND_ZERO, Columns, Simulate, many_looks, named, one_look, plan

MOMENTS: dict[str, Any] = {"moments": {}}
WAYS: dict[str, dict[str, Any]] = {
    "sums": {},
    "sums, covariate": {"covariates": ["x"]},
    "moments": MOMENTS,
    "moments, covariate": {**MOMENTS, "covariates": ["x"]},
    "moments, complete units": {**MOMENTS, "records_per_unit": "together"},
    "moments, bootstrap": {"moments": {"bootstrap": 100}},
    "moments, bootstrap still withheld": {"moments": {"bootstrap": 1_000}},
}
SIZES = {"120 units of 6": (120, 6), "600 units of 10": (600, 10)}


def records(units: int, each: int) -> Simulate:
    """Records of a unit are alike, and so is what is known of them beforehand."""

    def simulate(rng: np.random.Generator) -> Columns:
        d, own, before = rng.random(units) < 0.5, rng.normal(size=units), rng.normal(size=units)
        unit = np.repeat(np.arange(units), each)
        y = (own + 0.5 * before)[unit] + rng.normal(size=len(unit))
        return {"arm": named(d[unit]), "unit": unit, "x": before[unit], "y": y}

    return simulate


def shuffled(units: int, each: int) -> Simulate:
    """The same in any order, so that most units come back again and again.

    The level is far above zero: moments wait longer with any-time intervals of values on both sides of it.
    """

    def simulate(rng: np.random.Generator) -> Columns:
        columns, order = records(units, each)(rng), rng.permutation(units * each)
        columns["y"] += 5
        return {name: column[order] for name, column in columns.items() if name != "x"}

    return simulate


def uneven(units: int) -> Simulate:
    """Most units have few records, and some have very many."""

    def simulate(rng: np.random.Generator) -> Columns:
        size = np.minimum(np.ceil(2 * (1 + rng.pareto(2.0, units))), 200).astype(int)
        d, own = rng.random(units) < 0.5, rng.normal(size=units)
        unit = np.repeat(np.arange(units), size)
        y = own[unit] + rng.normal(size=len(unit))
        return {"arm": named(d[unit]), "unit": unit, "y": y}

    return simulate


def villages(count: int) -> Simulate:
    """People of both arms in every village, whose effects differ between villages around none."""

    def simulate(rng: np.random.Generator) -> Columns:
        village = np.repeat(np.arange(count), 20)
        d = rng.random(len(village)) < 0.5
        effect = rng.normal(size=count)
        y = effect[village] * d + rng.normal(size=len(village))
        return {"arm": named(d), "village": village, "y": y}

    return simulate


def designs() -> Iterator[Design]:
    """All of them."""
    for size, (units, each) in SIZES.items():
        for way, settings in WAYS.items():
            if "withheld" in way and units * each > settings["moments"]["bootstrap"]:
                continue
            made = plan(0.5, ["y"], unit="unit", **settings)
            yield Design("units", f"{size}, {way}", one_look(made, records(units, each), AROUND_ZERO))
    for way in ("sums", "moments", "moments, complete units"):
        made = plan(0.5, ["y"], unit="unit", **WAYS[way])
        yield Design("units", f"200 uneven units, {way}", one_look(made, uneven(200), AROUND_ZERO))
    for way, settings in {"sums": {}, "moments, bootstrap": {"moments": {"bootstrap": 100}}}.items():
        made = plan(0.5, ["y"], cluster="village", **settings)
        yield Design("units", f"60 villages of 20, {way}", one_look(made, villages(60), AROUND_ZERO))
    for way in ("sums", "moments"):
        made = plan(0.5, ["y"], unit="unit", **WAYS[way])
        yield Design(
            "any time", f"600 units of 10 in any order, {way}", many_looks(made, shuffled(600, 10)), (EVER,), part=0.25
        )
