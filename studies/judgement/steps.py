"""Quantiles of counts, of rounded values and of continuous ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import foldaway as fa
from studies.judgement.design import COVERS, Design
from studies.judgement.reading import Columns, Simulate, Truth, named, one_look, plan

Draw = Callable[[np.random.Generator, NDArray[np.float64]], NDArray[np.float64]]

QUANTILES = (0.25, 0.5, 0.75, 0.9)
COUNTS, MILLISECONDS = (0.0, 60.0), (1.0, 60_000.0)
VALUES: dict[str, tuple[tuple[float, float], Draw]] = {
    "Poisson counts of mean 4": (COUNTS, lambda rng, u: rng.poisson(4 * np.exp(0.3 * u)).astype(float)),
    "Poisson counts of mean 1": (COUNTS, lambda rng, u: rng.poisson(np.exp(0.3 * u)).astype(float)),
    "items in a basket": (COUNTS, lambda rng, u: rng.geometric(np.clip(0.3 * np.exp(0.2 * u), 0, 1)).astype(float)),
    "whole milliseconds about 20": (MILLISECONDS, lambda rng, u: np.ceil(20 * np.exp(0.3 * (u + _z(rng, u))))),
    "ratings from 1 to 5": ((0.0, 6.0), lambda rng, u: np.clip(np.rint(3.4 + u + _z(rng, u)), 1, 5)),
    "continuous": (MILLISECONDS, lambda rng, u: 200 * np.exp(0.5 * (u + _z(rng, u)))),
}


def _z(rng: np.random.Generator, like: NDArray[np.float64]) -> NDArray[np.float64]:
    return rng.normal(size=len(like))


def values(draw: Draw, treated: float, n: int, times: float = 1.0) -> Simulate:
    """Independent records."""

    def simulate(rng: np.random.Generator) -> Columns:
        d = rng.random(n) < treated
        return {"arm": named(d), "y": draw(rng, rng.normal(size=n)) * np.where(d, times, 1.0)}

    return simulate


def values_of_units(draw: Draw, units: int, each: int) -> Simulate:
    """Records of a unit are alike."""

    def simulate(rng: np.random.Generator) -> Columns:
        d, own = rng.random(units) < 0.5, rng.normal(size=units)
        unit = np.repeat(np.arange(units), each)
        return {"arm": named(d[unit]), "unit": unit, "y": draw(rng, own[unit])}

    return simulate


def quantiles(bounds: tuple[float, float], of: tuple[float, ...] = QUANTILES) -> list[fa.Quantile]:
    """The outcomes."""
    return [fa.Quantile("y", of, bounds=bounds)]


def designs() -> Iterator[Design]:
    """All of them."""
    for what, (bounds, draw) in VALUES.items():
        records, units = plan(0.5, quantiles(bounds)), plan(0.5, quantiles(bounds), unit="unit")
        yield Design("quantiles", f"{what}, 600 records", one_look(records, values(draw, 0.5, 600)))
        yield Design("quantiles", f"{what}, 200 units of 4", one_look(units, values_of_units(draw, 200, 4)))
    bounds, draw = VALUES["Poisson counts of mean 4"]
    few = plan(0.1, quantiles(bounds))
    yield Design("quantiles", "Poisson counts of mean 4, 2,000 records, 90/10", one_look(few, values(draw, 0.1, 2_000)))
    bounds, draw = VALUES["continuous"]
    level = 200.0  # the median, which is lognormal
    shifted: dict[str, Any] = {"y p50": Truth(0.2 * level, 0.2)}
    for arms, treated in {"50/50": 0.5, "90/10": 0.1}.items():
        median = plan(treated, quantiles(bounds, (0.5,)))
        trial = one_look(median, values(draw, treated, 1_000, 1.2), shifted)
        yield Design("quantiles", f"continuous, 1,000 records, a fifth more, {arms}", trial, (COVERS,))
