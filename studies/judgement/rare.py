"""Shares and skewed revenue, with small arms and few events."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import foldaway as fa
from studies.judgement.design import COVERS, EVER, RELATIVE, WRONG, Design, Found, Law
from studies.judgement.reading import (
    Columns,
    Simulate,
    Truth,
    decided,
    folded,
    leads,
    many_looks,
    named,
    one_look,
    plan,
)

ARMS = {"50/50": 0.5, "90/10": 0.1, "95/5": 0.05, "99/1": 0.01}
SHARES = ((0.02, 1_000), (0.02, 10_000), (0.2, 1_000))
REVENUE = ((1.0, 2_000), (0.05, 4_000), (0.01, 4_000))
CORRELATION = 0.3
RECORDS = 5  # of a unit

NOTED = Law("covers or is noted", 0.935, least=True)
UNLIKE = Law("unlike the owner's", 0.03)


def shares(treated: float, rate: float, n: int, times: float = 1.0) -> Simulate:
    """Records of which this share converts; so many times as many of the treated."""

    def simulate(rng: np.random.Generator) -> Columns:
        d = rng.random(n) < treated
        return {"arm": named(d), "y": (rng.random(n) < np.where(d, times, 1.0) * rate).astype(float)}

    return simulate


def shares_of_units(treated: float, rate: float, units: int) -> Simulate:
    """The same of units, each with a probability of its own (beta-binomial)."""

    def simulate(rng: np.random.Generator) -> Columns:
        d = rng.random(units) < treated
        size = (1 - CORRELATION) / CORRELATION
        own = rng.beta(rate * size, (1 - rate) * size, units)
        unit = np.repeat(np.arange(units), RECORDS)
        y = (rng.random(len(unit)) < own[unit]).astype(float)
        return {"arm": named(d[unit]), "unit": unit, "y": y}

    return simulate


def revenue(treated: float, buyers: float, n: int, times: float = 1.0) -> Simulate:
    """Of this share of records a lognormal amount, of all others none; so many times as much of the treated."""

    def simulate(rng: np.random.Generator) -> Columns:
        d = rng.random(n) < treated
        y = (rng.random(n) < buyers) * rng.lognormal(size=n) * np.where(d, times, 1.0)
        return {"arm": named(d), "unit": np.arange(n), "y": y}

    return simulate


def per_session(treated: float, buyers: float, n: int) -> Simulate:
    """The same of units with about three sessions each."""
    simulated = revenue(treated, buyers, n)

    def simulate(rng: np.random.Generator) -> Columns:
        columns = simulated(rng)
        return {**columns, "sessions": 1.0 + rng.poisson(2, n)}

    return simulate


def none_of_a_hundred(rng: np.random.Generator) -> Found:
    """0 of 100 against 200 of 9,900, which chance gives in a quarter of trials (Fisher's exact p is .27)."""
    d = np.arange(10_000) < 100
    y = (np.arange(10_000) >= 9_800).astype(float)
    effects = folded(plan(0.01, [converts(), "y"]), {"arm": named(d), "y": y}, rng).effects()
    return {
        kind: {
            "found": decided(said.verdict),
            "relative interval is one point": row.relative_ci_lower is not None
            and row.relative_ci_upper == row.relative_ci_lower,
        }
        for kind, (said, row) in zip(("share", "mean"), leads(effects), strict=True)
    }


def converts() -> fa.Share:
    """The share of conversions."""
    return fa.Share("y", equals=1)


def designs() -> Iterator[Design]:
    """All of them."""
    for arms, treated in ARMS.items():
        for rate, n in SHARES:
            made = plan(treated, [converts()])
            yield Design("shares", f"{100 * rate:g} % of {n:,}, {arms}", one_look(made, shares(treated, rate, n)))
        for buyers, n in REVENUE:
            who = "all buy" if buyers == 1 else f"{100 * buyers:g} % buy"
            made = plan(treated, ["y"])
            yield Design("revenue", f"{who}, {n:,}, {arms}", one_look(made, revenue(treated, buyers, n)))
        for unit in (None, "unit"):
            made = plan(treated, [fa.Ratio("y", "sessions")], unit=unit)
            what = f"per session, 1 % buy, 4,000{' units' if unit else ''}, {arms}"
            yield Design("revenue", what, one_look(made, per_session(treated, 0.01, 4_000)))
        made = plan(treated, [converts()])
        twice = one_look(made, shares(treated, 0.02, 5_000, 2.0), Truth(0.02, 1.0))
        yield Design("shares", f"2 % of 5,000, doubled, {arms}", twice, (COVERS, RELATIVE))
        half = one_look(plan(treated, ["y"]), revenue(treated, 0.05, 4_000, 1.5), _half_as_much(0.05))
        yield Design("revenue", f"5 % buy, 4,000, half as much again, {arms}", half, (NOTED,))
    for arms in ("90/10", "99/1"):
        treated = ARMS[arms]
        by_unit = plan(treated, [converts()], unit="unit")
        name = f"5 % of 2,000 units of {RECORDS}, {arms}"
        yield Design("shares", name, one_look(by_unit, shares_of_units(treated, 0.05, 2_000)))
        rate = 0.02 if treated > 0.05 else 0.2  # others are told where enough of either arm convert
        told = one_look(plan(treated, [converts()]), shares(treated, rate, 10_000), told=True)
        yield Design("shares", f"{100 * rate:g} % of 10,000, {arms}, as others are told", told, (WRONG, UNLIKE))
        units = one_look(plan(treated, ["y"], unit="unit"), revenue(treated, 0.05, 4_000))
        yield Design("revenue", f"5 % buy, 4,000 units, {arms}", units)
    exact = (Law("found", 0.0, never=True), Law("relative interval is one point", 0.0, never=True))
    yield Design("shares", "0 of 100 against 200 of 9,900", none_of_a_hundred, exact, part=0.001)
    for arms in ("90/10", "99/1"):
        treated = ARMS[arms]
        ever = many_looks(plan(treated, [converts()]), shares(treated, 0.02, 10_000))
        yield Design("any time", f"share of 2 %, 10,000, {arms}", ever, (EVER,), part=0.25)
    ever = many_looks(plan(0.05, ["y"]), revenue(0.05, 0.05, 5_000))
    yield Design("any time", "revenue, 5 % buy, 5,000, 95/5", ever, (EVER,), part=0.25)


def _half_as_much(buyers: float) -> Truth:
    return Truth(0.5 * buyers * math.exp(0.5), 0.5)
