"""Do intervals cover for every kind of outcome, within strata and segments, and for compliers?

Whole trials go through the library as users call it: records are folded in batches, the state is saved and loaded, and
the effects are read from it.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

import foldaway as fa
from foldaway.effects import Effect
from foldaway.numerics.threads import cores
from studies.findings import Findings, counted, options_of, publish

NAME = "questions"
KEY = bytes(range(16))
UNITS = 400
SITES = {"lyon": 0.5, "leeds": 0.3, "turin": 0.8}
LEVELS = {"lyon": 0.0, "leeds": 3.0, "turin": -3.0}
UPTAKE = {"strong": 0.6, "weak": 0.06}
OUTCOMES: list[Any] = [
    "y",
    fa.Mean("y", name="capped y", cap=(8, 13)),
    fa.Share("y", above=11),
    fa.Ratio("clicks", "views"),
    fa.Total("y", assigned_units=UNITS),
    fa.Quantile("latency", (0.5, 0.95), bounds=(1, 10_000)),
]


class Design(NamedTuple):
    """What is simulated: whether units have several records, and whether the plan has covariates."""

    clustered: bool
    adjusted: bool

    @property
    def words(self) -> list[str]:
        """For a table."""
        return ["several" if self.clustered else "one", "yes" if self.adjusted else "no"]


def records(chance: np.random.Generator, units: int, clustered: bool, uptake: str = "strong") -> dict[str, Any]:
    """y = 10 + site + x + u + 0.5 t (0.9 on the web) + 1.5 of those who take it up + e, among other columns.

    The arm is assigned within sites. The treatment adds to clicks per view, and to latency 10 %.
    """
    u = np.repeat(np.arange(units), 1 + chance.poisson(1.5, units) if clustered else 1)
    n = len(u)
    own, keen = chance.normal(0, 1, units)[u], (chance.random(units) < UPTAKE[uptake])[u]
    site = chance.choice(list(SITES), units)[u]
    treated = chance.random(units)[u] < np.array([SITES[each] for each in site])
    x, web = chance.normal(0, 1, n), chance.random(n) < 0.5
    views = 1 + chance.poisson(3, n)
    y = 10 + np.array([LEVELS[each] for each in site]) + x + own + 0.5 * treated + 0.4 * treated * web
    return {
        "g": np.where(treated, "b", "a"), "u": u, "x": x, "site": site, "platform": np.where(web, "web", "app"),
        "received": (treated & keen).astype(float), "views": views,
        "clicks": chance.binomial(views, np.clip(0.3 + 0.05 * own + 0.03 * treated, 0.01, 0.99)),
        "latency": np.exp(5 + 0.3 * own + 0.5 * chance.normal(0, 1, n) + 0.1 * treated),
        "y": y + 1.5 * (treated & keen) + chance.normal(0, 1, n),
    }  # fmt: skip


def truths(clustered: bool, uptake: str = "strong") -> dict[str, float]:
    """Each outcome's effect in the population, where every site is as large: both arms of very many units."""
    units = 600_000
    data = records(np.random.default_rng(99), units, clustered, uptake)
    share = np.array([SITES[each] for each in data["site"]])
    weight = 1 / np.where(data["g"] == "b", share, 1 - share)
    arms: dict[str, dict[str, float]] = {}
    for arm in "ab":
        of = {name: column[data["g"] == arm] for name, column in data.items()}
        y, w = of["y"], weight[data["g"] == arm]
        sorted_latency = np.sort(of["latency"])
        below = np.cumsum(w[np.argsort(of["latency"])]) / w.sum()
        arms[arm] = {
            "y": float(np.average(y, weights=w)),
            "capped y": float(np.average(np.clip(y, 8, 13), weights=w)),
            "y > 11": float(np.average(y > 11, weights=w)),
            "clicks / views": float((w @ of["clicks"]) / (w @ of["views"])),
            "total y": float(w @ y) / units,
        }
        for q in (0.5, 0.95):
            arms[arm][f"latency p{100 * q:.0f}"] = float(sorted_latency[np.searchsorted(below, q)])
        for platform in ("app", "web"):
            at = of["platform"] == platform
            arms[arm][f"platform {platform}"] = float(np.average(y[at], weights=w[at]))
    effects = {name: arms["b"][name] - arms["a"][name] for name in arms["a"]}
    effects["compliers"] = effects["y"] / UPTAKE[uptake]
    return effects


def plan_of(design: Design) -> fa.Plan:
    """The plan that asks everything."""
    probabilities = {site: {"a": 1 - share, "b": share} for site, share in SITES.items()}
    return fa.Plan(
        name=NAME,
        arm="g",
        arms={"a": 0.5, "b": 0.5},
        outcomes=OUTCOMES,
        unit="u",
        covariates=["x"] if design.adjusted else [],
        segments=[{"column": "platform", "levels": ["app", "web"]}],
        received="received",
        strata=fa.Strata("site", probabilities),
    )


def folded(plan: fa.Plan, data: dict[str, Any]) -> fa.Effects:
    """In three batches, saved and loaded before the last."""
    trial = fa.Trial(plan, key=KEY)
    n = len(data["y"])
    for start, stop in itertools.pairwise([0, n // 3, 2 * n // 3, n]):
        if stop == n:
            trial = fa.Trial.loads(trial.dumps(), key=KEY)
        trial.fold({name: column[start:stop] for name, column in data.items()})
    return trial.effects()


def asked(effects: fa.Effects) -> Iterator[tuple[str, Effect]]:
    """What was asked, and its row: the best of each outcome, the compliers of y, y by platform."""
    for row in effects:
        if row.estimator == "compliers":
            if row.outcome == "y":
                yield "compliers", row
        elif row.se_kind == "jackknife":
            yield f"{row.outcome}{' adjusted' if row.estimator == 'adjusted' else ''}", row
    for by in effects.segments:
        if by.outcome == "y":
            yield from ((f"platform {row.segment}", row) for row in by.effects)


def cover(row: Effect, truth: float) -> bool | None:
    """Whether the interval covers; None if it is withheld."""
    if row.ci_lower is None or row.ci_upper is None:
        return None
    return row.ci_lower <= truth <= row.ci_upper


Counts = dict[str, list[bool | None]]


def study(design: Design, trials: int, seed: int, uptake: str = "strong") -> tuple[Counts, list[float]]:
    """For everything that is asked whether intervals covered; and the p-values of the test of alike segments."""
    target = truths(design.clustered, uptake)
    plan = plan_of(design)
    pooled = fa.Plan(name="pooled", arm="g", arms=plan.arms, outcomes=["y"], unit="u")
    covered: Counts = defaultdict(list)
    p_values: list[float] = []
    for trial in counted(range(trials), trials, " ".join(design.words)):
        chance = np.random.default_rng([seed, trial, *design, len(uptake)])
        data = records(chance, UNITS, design.clustered, uptake)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.SampleRatioWarning)
            effects = folded(plan, data)
            (ignoring,) = folded(pooled, data).filter(estimator="difference", se_kind="jackknife")
        for name, row in asked(effects):
            covered[name].append(cover(row, target[name.removesuffix(" adjusted")]))
        covered["y, strata ignored"].append(cover(ignoring, target["y"]))
        p_values += [
            by.differ_p_value for by in effects.segments if by.outcome == "clicks / views" and by.differ_p_value
        ]
    return covered, p_values


def shares(covered: Sequence[bool | None]) -> tuple[str, str]:
    """How many of the intervals that were told covered, and how many were withheld, in percent."""
    told = [each for each in covered if each is not None]
    covers = f"{100 * sum(told) / len(told):.1f}" if told else "–"
    return covers, f"{100 * (1 - len(told) / max(len(covered), 1)):.1f}"


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    options = options_of(NAME, arguments, trials=2000, seed=1)
    designs = [Design(clustered, adjusted) for clustered in (False, True) for adjusted in (False, True)]
    jobs = [(design, options.trials, options.seed) for design in designs]
    with ProcessPoolExecutor(cores()) as pool:
        last = pool.submit(study, Design(clustered=True, adjusted=False), options.trials, options.seed, "weak")
        found = dict(zip(designs, pool.map(study, *zip(*jobs, strict=True)), strict=True))
        weak = last.result()[0]["compliers"]
    rows = []
    for design, (covered, p_values) in found.items():
        for name, each in covered.items():
            rows.append([name, *design.words, *shares(each)])
        alarms = 100 * float(np.mean(np.array(p_values) < 0.05)) if p_values else math.nan
        rows.append(["segments differ, where they do not", *design.words, f"{100 - alarms:.1f}", "0.0"])
    rows.append(["compliers, 6 % take it up", "several", "no", *shares(weak)])
    publish(findings(rows, options.trials), NAME, options)


def findings(rows: Sequence[Sequence[str]], trials: int) -> Findings:
    """The page."""
    likely = [row for row in rows if "ignored" not in row[0] and row[3] != "–"]
    lowest, highest = (pick(likely, key=lambda row: float(row[3])) for pick in (min, max))
    deviation = 100 * math.sqrt(0.05 * 0.95 / trials)
    return Findings(
        title="Coverage of every question",
        question=__doc__ or "",
        header=["question", "records of a unit", "covariates", "covers, %", "withheld, %"],
        rows=rows,
        left=3,
        answer=f"""Each row has {trials:,} trials of {UNITS} units at three sites with arm probabilities of 0.5, 0.3 and
        0.8. The Monte Carlo standard error is {deviation:.1f} points. Coverage of 95 % intervals lies between
        {lowest[3]} % ({lowest[0]}) and {highest[3]} % ({highest[0]}).

“Strata ignored” is the plain difference of the same records. It compares sites that are not alike, so its interval
misses the effect. Where only 6 % take up the treatment, the interval for compliers is withheld whenever it is
unbounded.""",
    )


if __name__ == "__main__":
    main([])
