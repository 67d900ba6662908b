"""Trials to report on: empty, small, large, with many arms and outcomes, with faults, with nothing as it should be."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

import foldaway as fa
from foldaway.plan import Bootstrap
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from trials import folded, make_trial

HOSTILE = "</title></style><script>alert(1)</script>\"><svg onload='alert(2)'>&lt;b&amp;\u202e"
"""A name that tries to end every element and attribute it could stand in, and to turn the line around."""


KEY = bytes(range(16))


def checked_out(n: int, plan: fa.Plan = PLAN) -> fa.Trial:
    trial = fa.Trial(plan)
    for batch in checkout(n):
        trial.fold(batch)
    return trial


def empty() -> fa.Trial:
    return fa.Trial(PLAN)


def small() -> fa.Trial:
    return checked_out(60)


def large() -> fa.Trial:
    return checked_out(50_000)


def many() -> fa.Trial:
    """Five arms and six outcomes, by unit."""
    return folded(*make_trial(5, n=1500, arms=5, outcomes=6, covariates=1, levels=2, units=True))


def failing() -> fa.Trial:
    """Those who spent much are missing from the treatment; each customer has one record."""
    rows = pa.Table.from_batches(list(checkout(6_000))).to_pandas()
    trial = fa.Trial(msgspec.structs.replace(PLAN, moments={}, records_per_unit="together"))
    trial.fold(rows[(rows["variant"] == "control") | (rows["revenue"] < 40)])
    return trial


def faulty() -> fa.Trial:
    """Records left out in one arm more than in the other, and some of no known arm."""
    plan, rows = make_trial(6, n=400)
    rows.loc[rows.index[rows["group"] == "arm1"][:9], "y0"] = None
    rows.loc[rows.index[rows["group"] == "arm0"][:2], "x0"] = None
    rows.loc[rows.index[-3:], "group"] = "unheard-of"
    return folded(msgspec.structs.replace(plan, drop_limit=0.05), rows)


def resampled() -> fa.Trial:
    plan = msgspec.structs.replace(
        PLAN, moments={"bootstrap": Bootstrap(250, "double-or-nothing")}, outcomes=["revenue"]
    )
    trial = fa.Trial(plan, key=KEY)
    for batch in checkout(2_000):
        trial.fold(batch)
    return trial


def extreme() -> fa.Trial:
    """Numbers from very small to very large, one that does not vary, and a control at zero."""
    plan, rows = make_trial(8, n=500, outcomes=2)
    rows["huge"], rows["tiny"] = rows["y0"] * 1e13 + 1e15, rows["y1"] * 1e-11
    rows["constant"], rows["zero"] = 3.5, np.where(rows["group"] == "arm0", 0.0, rows["y0"])
    plan = msgspec.structs.replace(plan, outcomes=["huge", "tiny", "constant", "zero"])
    return folded(plan, rows)


def renamed(name: str) -> fa.Trial:
    """A trial whose every column, arm and level carries this name, apart from a number."""
    plan, rows = make_trial(9, n=300, arms=3, covariates=2, levels=3)
    arms = {f"{name}{a}": share for a, share in enumerate(plan.arms.values())}
    levels = [f"{name}{level}" for level in range(3)]
    columns = {"group": f"{name}g", "y0": f"{name}y", "x0": f"{name}x", "x1": f"{name}z", "kind": f"{name}k"}
    rows["group"] = rows["group"].map(dict(zip(plan.arms, arms, strict=True)))
    rows["kind"] = rows["kind"].map(lambda level: f"{name}{level[1:]}")
    rows = rows.rename(columns=columns)
    rows.loc[rows.index[:4], f"{name}y"] = None
    rows.loc[rows.index[rows[f"{name}g"] != next(iter(arms))][:120], f"{name}g"] = next(iter(arms))
    hostile = fa.Plan(
        name="renamed",
        arm=f"{name}g",
        arms=arms,
        outcomes=[f"{name}y"],
        covariates=[f"{name}x", f"{name}z", {"column": f"{name}k", "levels": levels}],
        unit="unit",
        moments=fa.Moments(),
        records_per_unit="together",
        drop_limit=0.05,
    )
    trial = fa.Trial(
        hostile, key=KEY
    )  # which group a unit is in is the key's to say: pages are to differ by name alone
    trial.fold(pd.DataFrame(rows))
    return trial


def hostile() -> fa.Trial:
    return renamed(HOSTILE)


MAKERS = (empty, small, large, many, failing, faulty, resampled, extreme, hostile)
CASES = {maker.__name__: maker for maker in MAKERS}


@cache
def _made(name: str) -> fa.Trial:
    return CASES[name]()


def case(name: str) -> fa.Trial:
    """The trial of that name, made once; a copy, since saving a trial changes it."""
    return _made(name).copy()
