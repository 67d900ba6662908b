"""Do intervals within strata and sites cover, with unequal shares and sizes, and those of the mean over sites?

Every cell goes through the functions that sites deal and coordinators read with: groups of `smallest_cell` units, the
blocked jackknife, and random effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foldaway.federated.modes.site_groups import neighbours
from foldaway.inference.blocked_groups import blocked_by_group
from foldaway.inference.intervals import critical
from foldaway.inference.jackknife import Cells, jackknife, mean
from foldaway.inference.levels import LEAST_GROUPS, difference_of
from foldaway.inference.random_effects import random_effects
from foldaway.numerics.block import Floats
from studies.findings import Findings, counted, options_of, publish
from studies.groups_coverage import sizes

NAME = "site_coverage"
CONFIDENCE = 0.95
EFFECT = 0.3
SHARES = (1 / 2, 2 / 3, 1 / 4)
MANY = (60, 80, 80, 100, 100, 150, 150, 200, 250, 300, 400, 600)


class Design(NamedTuple):
    """Strata or sites.

    Attributes:
        what: In words.
        units: How many units each has.
        least: The units of each arm in each group that a site sends; None for strata in one place.
        spread: The standard deviation of true effects between them.
        groups: The plan's groups.
    """

    what: str
    units: tuple[int, ...]
    least: int | None
    spread: float = 0.0
    groups: int = 128


DESIGNS = (
    Design("3 strata of 100 units", (100,) * 3, None),
    Design("3 strata of 300, 60 and 20 units", (300, 60, 20), None),
    Design("20 strata of 30 units", (30,) * 20, None, groups=64),
    Design("3 sites of 160, 120 and 90 units", (160, 120, 90), 5),
    Design("3 sites of 1,000, 100 and 60 units", (1000, 100, 60), 5),
    Design("5 sites of 100 to 400 units, effects alike", (100, 150, 200, 300, 400), 5),
    Design("5 sites of 100 to 400 units, effects differ", (100, 150, 200, 300, 400), 5, 0.3),
    Design("12 sites of 60 to 600 units, effects differ", MANY, 5, 0.3),
)


class Covered(NamedTuple):
    """How often intervals covered, of those that were told; and the mean over sites, of the trials that have one."""

    within: float
    told: float
    pooled: float
    over: float


def drawn(rng: np.random.Generator, design: Design) -> tuple[Floats, Floats, float]:
    """Records and sums by site, group and arm; and the effect within these sites."""
    shape = len(design.units), design.groups, 2
    n, total = np.zeros(shape), np.zeros(shape)
    effects = EFFECT + design.spread * rng.standard_normal(len(design.units))
    for site, units in enumerate(design.units):
        size = sizes(rng, "unequal", (1, units))[0]
        arm = (rng.random(units) < SHARES[site % len(SHARES)]).astype(int)
        own = 2.0 * site + effects[site] * arm + rng.standard_normal(units)
        sums = size * own + np.sqrt(size) * rng.standard_normal(units)
        group = rng.integers(0, design.groups, units)
        if design.least is not None:
            counts = np.zeros((2, design.groups), dtype=np.int64)
            np.add.at(counts, (arm, group), 1)
            place = neighbours(counts, design.least)
            filled = int(place[-1]) + 1
            group = (rng.integers(design.groups) + place[group] * design.groups // filled) % design.groups
        np.add.at(n[site], (group, arm), size)
        np.add.at(total[site], (group, arm), sums)
    weight = n.sum(axis=(1, 2))
    return n, total, float(effects @ weight / weight.sum())


def covered(design: Design, trials: int, seed: int) -> Covered:
    """One cell."""
    rng = np.random.default_rng([seed, len(design.units), design.units[0]])
    within, pooled, over, told = [], [], [], 0
    for _ in range(trials):
        n, total, effect = drawn(rng, design)
        levels = blocked_by_group(Cells(n, total))
        plain = difference_of(jackknife(mean, Cells(n.sum(axis=0), total.sum(axis=0))), 1)
        pooled.append(_covers(plain, effect))
        if not any(levels.why):
            told += 1
            within.append(_covers(difference_of(levels, 1), effect))
        by_site = difference_of(jackknife(mean, Cells(n, total)), 1)
        known = ((n > 0).sum(axis=1) >= LEAST_GROUPS).all(axis=-1)
        if known.sum() > 1:
            found = random_effects(by_site.estimate[known], by_site.variance[known], CONFIDENCE)
            over.append(found.ci_lower < EFFECT < found.ci_upper)
    return Covered(float(np.mean(within)), told / trials, float(np.mean(pooled)), float(np.mean(over)))


def _covers(found: object, effect: float) -> bool:
    estimate, variance, df = (float(getattr(found, name)) for name in ("estimate", "variance", "df"))
    return abs(estimate - effect) < critical(CONFIDENCE, df) * math.sqrt(variance)


def findings(results: dict[Design, Covered], trials: int) -> Findings:
    """The table and what it says."""
    rows = [
        [each.what, *(f"{100 * share:.1f} %" for share in (found.within, found.told, found.pooled, found.over))]
        for each, found in results.items()
    ]
    low, high = (100 * end(found.within for found in results.values()) for end in (min, max))
    lowest = 100 * min(found.pooled for found in results.values())
    means = [100 * found.over for found in results.values()]
    error = 100 * math.sqrt(0.95 * 0.05 / trials)
    return Findings(
        "Coverage within strata and sites",
        f"""We drew {trials:,} trials of each design, with 95 % intervals; one Monte Carlo standard error of a coverage
        is {error:.2f} points. The outcome is y = 2 s + d (0.3 + a) + u + e: s numbers the sites, a varies between sites
        where effects differ, u between units and e between records. Units have from one to about 50 records. Of the
        units, 1/2, 2/3 and 1/4 are treated at the first three sites, and so on. Units of strata are dealt into groups
        at random; sites join theirs until each has five units of both arms. “Within” is the interval of the effect
        within strata or sites, about the effect on these; “told”, how often it was; “pooled”, that of the plain
        difference. “Over sites” is Hartung's and Knapp's interval for the mean of which these sites are a sample.""",
        ["design", "within", "told", "pooled", "over sites"],
        rows,
        f"""Intervals within strata and sites cover in {low:.1f} to {high:.1f} % of trials, whatever the shares and
        sizes; those of the plain difference in as few as {lowest:.1f} %. They are on the safe side where effects
        differ, since the interval allows for sites' sizes being chance. The mean over sites is
        covered in {min(means):.1f} to {max(means):.1f} %.""",
        left=1,
    )


def study(trials: int, seed: int) -> dict[Design, Covered]:
    """Every cell."""
    return {each: covered(each, trials, seed) for each in counted(DESIGNS, len(DESIGNS), "designs")}


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2000, seed=1)
    publish(findings(study(options.trials, options.seed), options.trials), NAME, options)
