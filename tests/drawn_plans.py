"""Plans drawn at random for one table of records, what is told of them, and the smallest that still fails."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import foldaway as fa
from foldaway.errors import EstimateError, PlanError, RecordError
from plans import listing

Settings = dict[str, Any]

# Kinds of records: of many units, of few, with one unit that has half of all, with none in an arm, with faults.
PARTS = ("many", "few", "whale", "one arm", "faulty")
LISTED = {"c": ["de", "fr"], "o": ["k", "l", "m"], "s": ["north", "south"]}
SHARES = ({"a": 0.3, "b": 0.7}, {"a": 0.6, "b": 0.4})


def rows_of(n: int = 700, seed: int = 1) -> pd.DataFrame:
    """Records of all parts, with whatever a plan may ask of them."""
    rng = np.random.default_rng(seed)
    return pd.concat([_part(rng, name, 40 if name == "few" else n) for name in PARTS], ignore_index=True)


def _part(rng: np.random.Generator, name: str, n: int) -> pd.DataFrame:
    who = rng.integers(0, n // 3, n)
    if name == "whale":
        who[rng.random(n) < 0.5] = 0
    arm = np.where(rng.random(n) < (1.0 if name == "one arm" else 0.5), "a", "b")
    rows = pd.DataFrame(
        {
            "part": name,
            'it\'s "g"': arm,
            "who": [f"é'\"\\%{number}" for number in who],
            "row": np.arange(n),
            "v": who // 3,
            "y": rng.lognormal(3, 1, n) + 0.2 * (who % 7) + 2.0 * (arm == "b"),
            "far": 1e9 + rng.normal(0, 1, n),
            "select": rng.normal(0, 1e-6, n),
            "k": rng.integers(1, 12, n),
            "m": np.where(rng.random(n) < 0.2, np.nan, rng.normal(50, 20, n)),
            "rare": np.where(rng.random(n) < 0.02, rng.exponential(1, n), 0.0),
            "z": rng.integers(0, 2, n),
            "w": rng.uniform(0.2, 3, n),
            "x": rng.normal(5, 2, n),
            "c": rng.choice(LISTED["c"], n),
            "o": rng.choice(LISTED["o"], n, p=[0.6, 0.3, 0.1]),
            "s": rng.choice(LISTED["s"], n),
        }
    )
    if name == "faulty":
        for column, value in (('it\'s "g"', "A "), ("who", None), ("o", None), ("s", "south "), ("c", "")):
            rows.loc[rng.random(n) < 0.01, column] = value
        for column, number in (("y", -2e40), ("far", np.nan), ("w", 0.0), ("w", -1.0), ("x", np.nan)):
            rows.loc[rng.random(n) < 0.01, column] = number
    return rows


def drawn(seed: int) -> tuple[str, Settings]:
    """A part of the records, and a plan for them."""
    rng = random.Random(seed)
    while True:
        part, settings = rng.choice(PARTS), _drawn(rng)
        if plan_of(settings) is not None:
            return part, settings


def plan_of(settings: Settings) -> fa.Plan | None:
    """The plan of these settings, if they make one."""
    try:
        return fa.Plan.of(settings)
    except PlanError:
        return None


def _drawn(rng: random.Random) -> Settings:
    def sometimes(probability: float) -> bool:
        return rng.random() < probability

    outcomes = rng.sample(list(_outcomes(rng)), rng.choice((1, 1, 2, 3)))
    settings: Settings = {
        "name": "d",
        "arm": 'it\'s "g"',
        "arms": {"a": 0.5, "b": 0.5},
        "hash": "sha256",
        "outcomes": outcomes,
        "privacy": {"cohort": 20, "smallest_cell": 2},
        "drop_limit": rng.choice((0.0, 0.5, 0.5)),
    }
    if sometimes(0.2):
        settings["arms"] = {"old": {"share": 0.5, "values": "b"}, "new": {"share": 0.5, "values": ["a", "A"]}}
    if sometimes(0.8):
        settings["unit"] = "who"
    elif sometimes(0.5):
        settings |= {"unit": "row", "records_per_unit": "one"}
    for setting, column, probability in (("cluster", "v", 0.2), ("weight", "w", 0.3), ("received", "z", 0.2)):
        if sometimes(probability) and (setting != "received" or {"unit", "cluster"} & settings.keys()):
            settings[setting] = column
    if sometimes(0.25):
        settings["expected_units"] = rng.choice((100, 1_000, 20_000))
    if sometimes(0.25):
        settings["strata"] = {
            "column": "s",
            "probabilities": {
                stratum: dict(zip(settings["arms"], shares.values(), strict=True))
                for stratum, shares in zip(LISTED["s"], SHARES, strict=True)
            },
        }
    listed = set()
    if sometimes(0.4):
        settings["segments"] = rng.sample(list(LISTED), rng.choice((1, 1, 2)))
        listed |= {column for column in settings["segments"] if sometimes(0.6)}
    if sometimes(0.4):
        settings["covariates"] = rng.sample(["x", "c"], rng.choice((1, 2)))
        listed |= {"c"} & set(settings["covariates"])
    if sometimes(0.3):
        settings["baseline"] = rng.sample(["x", "m", "rare", "k", *LISTED], rng.choice((1, 2, 3)))
        listed |= LISTED.keys() & set(settings["baseline"])
    if sometimes(0.3):
        limits = {"bounds": [1.0, 60.0], "beyond": rng.choice(("clip", "refuse"))}
        settings["outcomes"] = [_within(each, limits) for each in settings["outcomes"]]
    listed -= {"s"} if "strata" in settings else set()
    for setting in {"segments", "covariates", "baseline"} & settings.keys():
        settings[setting] = listing(settings[setting], {column: LISTED[column] for column in listed})
    return fitted(settings | {"coefficients": {}}) if "covariates" in settings else settings


def _within(outcome: Any, limits: dict[str, Any]) -> Any:
    """The outcome with these bounds, if it is of y and can have some."""
    table = {"column": outcome} if isinstance(outcome, str) else outcome
    bounded = table.get("column") == "y" and table.get("kind", "mean") in ("mean", "share", "total")
    return {**table, **limits} if bounded else outcome


def fitted(settings: Settings) -> Settings:
    """The settings with coefficients for their columns and values, if they have any: those that the names draw."""
    without = {name: value for name, value in settings.items() if name != "coefficients"}
    if (plan := plan_of(without)) is None or without == settings or not plan.covariates:
        return without
    columns = plan.predictors[1:]

    def slopes(of: str) -> dict[str, float]:
        return {column: random.Random(of + column).gauss(0, 1) for column in columns}

    return without | {
        "coefficients": {
            "center": slopes("center"),
            "slopes": {value.name: slopes(value.name) for value in plan.values},
        }
    }


def _outcomes(rng: random.Random) -> Iterator[Any]:
    """One outcome of each kind and column."""
    yield from ("y", "far", "select", "k", "rare")
    yield {"column": "m", "missing": "allowed"}
    yield {"column": "y", "cap": [2.0, rng.uniform(20, 60)]}
    yield {"kind": "share", "column": "y", "above": rng.uniform(10, 50)}
    yield {"kind": "share", "column": "k", rng.choice(("equals", "below")): rng.randrange(2, 11)}
    yield {"kind": "share", "column": "m", "above": 50.0, "missing": "allowed"}
    yield {"kind": "ratio", "numerator": "y", "denominator": "k"}
    yield {"kind": "ratio", "numerator": "m", "denominator": "k", "missing": "allowed"}
    yield {"kind": "total", "column": "y"}
    at = rng.choice(([], [30.0]))
    yield {"kind": "survival", "time": "y", "event": "z", "until": 60.0, "bins": 120, "at": at}
    quantiles = rng.choice(([0.5], [0.9], [0.25, 0.75]))
    yield {"kind": "quantile", "column": "y", "quantiles": quantiles, "bounds": [1.0, 1000.0], "resolution": 0.1}
    yield {"kind": "quantile", "column": "k", "quantiles": [0.5], "bounds": [0.0, 20.0], "resolution": 0.05}
    yield {"kind": "quantile", "column": "m", "quantiles": [0.5], "bounds": [1.0, 99.0], "missing": "allowed"}


def smallest(settings: Settings, fails: Callable[[Settings], Any]) -> Settings:
    """The settings without all that can be taken away while a plan still fails."""
    for fewer in map(fitted, _fewer(settings)):
        if plan_of(fewer) is not None and fails(fewer):
            return smallest(fewer, fails)
    return settings


def _fewer(settings: Settings) -> Iterator[Settings]:
    for setting, value in settings.items():
        if setting not in ("name", "arm", "arms", "hash", "outcomes", "coefficients"):
            yield {name: each for name, each in settings.items() if name != setting}
        if isinstance(value, list) and len(value) > 1:
            yield from (settings | {setting: value[:place] + value[place + 1 :]} for place in range(len(value)))


def told_of(fold: Callable[[], fa.Trial]) -> Any:
    """All that is told of a trial, as built-in objects; or why its records are refused."""
    try:
        trial = fold()
        return [json.loads(trial.effects().to_json()), trial.counts, trial.dropped]
    except (RecordError, EstimateError) as error:
        return str(error)


def difference(ours: Any, theirs: Any, error: float = 0.0, of_share: float = 0.0) -> str:
    """The first difference between what is told; empty if there is none.

    Estimates agree to 1e-9 of their standard error, and so do relative ones; errors and all others to 1e-9.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        error, of_share = theirs.get("std_error") or error, theirs.get("relative_std_error") or of_share
        found = (
            (name, difference(ours[name], theirs[name], of_share if name.startswith("relative") else error, of_share))
            for name in ours
        )
        return next((f"{name}: {why}" for name, why in found if why), "")
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return next((why for pair in zip(ours, theirs, strict=True) if (why := difference(*pair, error, of_share))), "")
    if isinstance(ours, float) and isinstance(theirs, float):
        same = math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=max(1e-9 * error, 1e-15))
    else:
        same = ours == theirs
    return "" if same else f"{ours!r} is not {theirs!r}"
