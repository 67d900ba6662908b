"""Random trials for the tests: hypothesis strategies that draw a plan and records to go with it."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import foldaway as fa
from foldaway.plan.vocabulary import ERRORS, MOMENTS


def make_trial(
    seed: int,
    *,
    n: int = 300,
    arms: int = 2,
    outcomes: int = 1,
    covariates: int = 1,
    levels: int = 0,
    weighted: bool = False,
    units: bool = False,
    shift: float = 0.0,
) -> tuple[fa.Plan, pd.DataFrame]:
    """A plan and its records: heteroscedastic, unbalanced, correlated within units, arms never empty."""
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.5, 2, arms)
    shares /= shares.sum()
    names = [f"arm{a}" for a in range(arms)]
    unit_count = max(10 * arms, n // 4) if units else n
    unit = np.sort(rng.integers(0, unit_count, n)) if units else np.arange(n)
    unit_arm = rng.choice(arms, unit_count, p=shares)
    unit_arm[: 5 * arms] = np.arange(5 * arms) % arms
    unit[: 5 * arms] = np.arange(5 * arms)
    arm = unit_arm[unit]
    x = {f"x{c}": rng.normal(rng.normal(0, 3), 10.0 ** rng.uniform(-2, 2), n) for c in range(covariates)}
    rows = pd.DataFrame({"group": np.array(names)[arm], **x})
    level_names = [f"l{level}" for level in range(levels)]
    if levels:
        rows["kind"] = rng.choice(level_names, n)
    rows["unit"] = [f"unit-{u}" for u in unit]
    rows["w"] = rng.uniform(0.2, 3, n)
    common = rng.normal(size=unit_count)[unit]
    standard = [(v - v.mean()) / v.std() for v in x.values()]
    for o in range(outcomes):
        mean = sum((rng.normal() + 0.5 * arm) * s for s in standard) + 0.3 * arm
        rows[f"y{o}"] = shift + mean + common + rng.normal(size=n) * (1 + 0.5 * arm)
    plan = fa.Plan(
        name=f"random-{seed}",
        arm="group",
        arms=dict(zip(names, shares.tolist(), strict=True)),
        outcomes=[f"y{o}" for o in range(outcomes)],
        covariates=[*x, *([{"column": "kind", "levels": level_names}] if levels else [])],
        unit="unit" if units else None,
        moments=fa.Moments(),
        records_per_unit="together" if units else "many",
        weight="w" if weighted else None,
    )
    return plan, rows


@st.composite
def trials(draw: st.DrawFn, /, **fixed: Any) -> tuple[fa.Plan, pd.DataFrame]:
    """A random plan with records."""
    options = {
        "n": st.integers(80, 400),
        "arms": st.integers(2, 4),
        "outcomes": st.integers(1, 2),
        "covariates": st.integers(0, 3),
        "levels": st.sampled_from([0, 2, 3]),
        "weighted": st.booleans(),
        "units": st.booleans(),
        "shift": st.sampled_from([0.0, 1e6, -1e3]),
    }
    chosen: dict[str, Any] = {
        name: fixed[name] if name in fixed else draw(strategy) for name, strategy in options.items()
    }
    return make_trial(draw(st.integers(0, 2**32 - 1)), **chosen)


def known(number: float | None) -> float:
    """A number that a row must have."""
    assert number is not None
    return number


def folded(plan: fa.Plan, rows: Any, *cuts: int) -> fa.Trial:
    """The trial of the rows, folded in batches cut at these positions."""
    trial = fa.Trial(plan)
    edges = [0, *sorted(cuts), len(rows)]
    for start, stop in pairwise(edges):
        trial.fold(rows[start:stop])
    return trial


def from_moments(effects: fa.Effects) -> fa.Effects:
    """The rows that are read from moments: all that there are where devices send these."""
    return dataclasses.replace(effects, rows=[row for row in effects if ERRORS[row.se_kind].source == MOMENTS])


def crowded(seed: int, *, units: int = 200, each: int = 100, lost: float = 0.0, **settings: Any) -> fa.Trial:
    """Soundly randomised units of many records, with a covariate that these share; some of one arm may be lost."""
    rng = np.random.default_rng(seed)
    sizes = rng.poisson(each, units) + 1
    arm = rng.integers(0, 2, units)
    arm, sizes = arm[kept := (arm == 0) | (rng.uniform(size=units) >= lost)], sizes[kept]
    unit = np.repeat(np.arange(len(sizes)), sizes)
    level = rng.normal(size=len(sizes))[unit]
    plan = fa.Plan(
        **{
            "name": "crowded",
            "arm": "group",
            "arms": {"a": 0.5, "b": 0.5},
            "outcomes": ["y"],
            "covariates": ["x"],
            "unit": "unit",
            "moments": {},
            **settings,
        }
    )
    x = level + 0.3 * rng.normal(size=len(unit))
    rows = {"group": np.array(["a", "b"])[arm[unit]], "unit": unit, "x": x, "y": x + rng.normal(size=len(unit))}
    trial = fa.Trial(plan, key=bytes(16) if plan.keyed else None)
    trial.fold(rows)
    return trial
