"""Do intervals of a release hold, how much wider are they, and can anybody tell who took part?

Units are drawn from a population of so many kinds, by multinomial counts: the sums of a million units are as quick as
those of ten thousand, and exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

import foldaway as fa
from foldaway.effects.released import least_records
from foldaway.inference.jackknife import Cells, jackknife, jackknife_adjusted, mean
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.welch import noisy_shares
from foldaway.numerics.block import Floats
from foldaway.tallies.release import Cell, cell_of, noise_scale, noisy_groups, release, spent
from foldaway.tallies.sums import Sums, SumsShape
from studies.findings import Findings, counted, filled, markdown_table, options_of, publish

NAME = "release"
SIZES = (10_000, 100_000, 1_000_000)
EPSILONS = (0.5, 1.0, 2.0)
DELTA = 1e-6
KINDS = 40
CONFIDENCE = 0.95

_BASE: dict[str, Any] = {"name": "study", "arm": "g", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"], "unit": "u"}
_BEFORE: dict[str, Any] = {
    "outcomes": [fa.Mean("y", bounds=(0, 200))],
    "covariates": [{"column": "x", "bounds": (0, 200)}],
    "coefficients": {"center": {"x": 40.0}, "slopes": {"y": {"x": 0.8}}},
}


class Design(NamedTuple):
    """What is released, and of whom.

    Attributes:
        about: What it is, for people.
        settings: Of the plan, but for ε.
        unit_records: The most records of a unit; none if each has one.
        groups: Those of the release.
    """

    about: str
    settings: dict[str, Any]
    unit_records: int | None = None
    groups: int = 16

    def plan(self, epsilon: float) -> fa.Plan:
        """The plan."""
        one = self.unit_records is None
        settings = {"records_per_unit": "one" if one else "together", **_BASE, **self.settings}
        return fa.Plan(**settings, release=fa.Release(epsilon, DELTA, self.unit_records, self.groups))


DESIGNS = {
    "share": Design("share of 20 %, one record", {"outcomes": [fa.Mean("y", bounds=(0, 1))]}),
    "rare": Design("share of 2 %, one record", {"outcomes": [fa.Mean("y", bounds=(0, 1))]}),
    "revenue": Design("revenue of 0 to 200, from 10 %", {"outcomes": [fa.Mean("y", bounds=(0, 200))]}),
    "revenue in 64": Design("the same in 64 groups", {"outcomes": [fa.Mean("y", bounds=(0, 200))]}, None, 64),
    "spending": Design("spending of 0 to 200, adjusted", _BEFORE),
    "visits": Design("revenue of 1 to 5 visits, adjusted", _BEFORE, 5),
}


class Population(NamedTuple):
    """Units of so many kinds.

    Attributes:
        chance: How often there is each kind: arms by kinds.
        has: What one of it has: arms by kinds by (records, Σy, Σp).
    """

    chance: Floats
    has: Floats

    @property
    def effect(self) -> float:
        """The true difference of means."""
        n, y, _ = np.einsum("ak,akv->va", self.chance, self.has)
        return float(y[1] / n[1] - y[0] / n[0])


class Result(NamedTuple):
    """Of the trials: how many intervals held, how wide they were at the median, and how wide without noise."""

    held: float
    width: float
    exact: float


def population(name: str, seed: int) -> Population:
    """The units of a design; the treatment adds a tenth."""
    if name in ("share", "rare"):
        rate = {"share": 0.2, "rare": 0.02}[name] * np.array([1.0, 1.1])
        return Population(np.stack([1 - rate, rate], axis=1), np.array([[[1.0, 0, 0], [1.0, 1, 0]]] * 2))
    rng = np.random.default_rng([seed, 7])
    records = rng.integers(1, 6, KINDS) if name == "visits" else np.ones(KINDS)
    before = np.clip(rng.lognormal(3.2, 0.9, KINDS), 0, 200)
    level = np.clip(0.8 * before + rng.normal(10, 12, KINDS), 0, 180)
    chance = np.full(KINDS, 1 / KINDS)
    if name.startswith("revenue"):  # half of the kinds buy, a tenth of the units
        buys = np.arange(KINDS) % 2 == 0
        level, chance = np.where(buys, level, 0), np.where(buys, 0.2, 1.8) / KINDS
    has = [np.stack([records, records * level * lift, records * 0.8 * (before - 40)], -1) for lift in (1, 1.1)]
    return Population(np.stack([chance, chance]), np.array(has))


def drawn(name: str, units: int, groups: int, trials: int, rng: np.random.Generator, seed: int) -> Floats:
    """The cells of trials: trials by groups by arms by (records, Σy, Σp)."""
    people = population(name, seed)
    each = rng.multinomial(units, np.full(2 * groups, 0.5 / groups), trials).reshape(trials, groups, 2)
    arms = [rng.multinomial(each[..., arm], people.chance[arm]) @ people.has[arm] for arm in range(2)]
    return np.stack(arms, axis=2)


def with_noise(cells: Floats, cell: Cell, groups: int, rng: np.random.Generator) -> Cells:
    """The same cells as a release has them."""
    trials, _, arms, _ = cells.shape
    merged = cells.reshape(trials, -1, groups, arms, 3).sum(axis=1)
    n = merged[..., 0]
    columns = [merged[..., 1 + j] - c * n for j, c in enumerate(cell.center)]
    n, y, *p = (
        column + scale * rng.standard_normal(column.shape)
        for column, scale in zip([n, *columns], cell.scale, strict=True)
    )
    level = float(cell.center[0])
    return Cells(n, y, y - p[0], level, level - float(cell.center[1])) if p else Cells(n, y, None, level)


def levels_of(plan: fa.Plan, cells: Cells) -> Levels:
    """As `effects/from_sums.py` reads them."""
    if plan.by_shares:
        total, scale = cells.total(), cell_of(plan).scale
        return noisy_shares(total.weight, total.value, total.level, (scale[0], scale[1]))
    return jackknife(mean, cells) if cells.adjusted is None else jackknife_adjusted(cells)


def interval(levels: Levels) -> tuple[Floats, Floats]:
    """The estimates, and how far their intervals reach."""
    found = difference_of(levels, 1)
    return found.estimate, stdtrit(np.minimum(found.df, 1e6), 0.5 + CONFIDENCE / 2) * np.sqrt(found.variance)


def study(name: str, units: int, trials: int, seed: int) -> dict[float, Result | None]:
    """All trials of one design and size, for every ε; None where noise drowns an arm."""
    rng = np.random.default_rng([seed, list(DESIGNS).index(name), units])
    plan, truth = DESIGNS[name].plan(1.0), population(name, seed).effect
    full = drawn(name, units, plan.groups, trials, rng, seed)
    adjusted = full[..., 1] - full[..., 2] if plan.covariates else None
    if plan.by_shares:
        total = full.sum(axis=1)
        exact = interval(noisy_shares(total[..., 0], total[..., 1], 0.0, (0.0, 0.0)))[1]
    else:
        cells = Cells(full[..., 0], full[..., 1], adjusted)
        exact = interval(jackknife(mean, cells) if adjusted is None else jackknife_adjusted(cells))[1]
    results: dict[float, Result | None] = {}
    for epsilon in EPSILONS:
        plan = DESIGNS[name].plan(epsilon)
        groups, cell = noisy_groups(plan), cell_of(plan)
        if units / 2 < least_records(plan):
            results[epsilon] = None
            continue
        estimate, reach = interval(levels_of(plan, with_noise(full, cell, groups, rng)))
        held = float(np.mean(np.abs(estimate - truth) <= reach))
        results[epsilon] = Result(held, float(np.median(reach)), float(np.median(exact)))
    return results


class Attack(NamedTuple):
    """How well the most powerful test tells whether one unit took part: true less false alarms, at the best threshold.

    Attributes:
        joint: With the noise of a release.
        alone: With noise for each sum alone.
        off: Without noise.
        allowed: What ε and δ allow.
        spent_alone: The ε that noise for each sum alone spends.
    """

    joint: float
    alone: float
    off: float
    allowed: float
    spent_alone: float


def attack(epsilon: float, runs: int, seed: int) -> Attack:
    """Whoever knows all others asks of a release with OpenDP's noise whether a unit at its bounds took part."""
    names = [f"y{i}" for i in range(8)]
    outcomes = [fa.Mean(name, bounds=(0, 1)) for name in names]
    settings = {**_BASE, "outcomes": outcomes, "records_per_unit": "one"}
    plan = fa.Plan(**settings, release=fa.Release(epsilon, DELTA))
    cell, rng = cell_of(plan), np.random.default_rng([seed, 11])
    empty = Sums.empty(SumsShape(2, len(names), 1))
    without = empty.fold(rng.integers(0, 2, 500), rng.integers(0, 2, (len(names), 500)))
    worlds = [without, without.fold([0], np.ones((len(names), 1)))]

    def seen(sums: Sums) -> Floats:
        return np.concatenate([sums.records[..., None], sums.total], axis=-1) / cell.scale

    base = [seen(release(plan, each, _Silence())) for each in worlds]  # type: ignore[arg-type]
    apart = base[1] - base[0]
    told = [np.array([seen(release(plan, each)) for _ in range(runs)]) for each in worlds]

    def advantage(shrunk: float) -> float:
        """With noise that is so much smaller."""
        scores = [
            np.sort(((mid + shrunk * (each - mid) - base[0]) * apart).sum(axis=(1, 2, 3)))
            for mid, each in zip(base, told, strict=True)
        ]
        cuts = np.concatenate(scores)
        rates = [1 - np.searchsorted(each, cuts, side="right") / runs for each in scores]
        return float(np.max(rates[1] - rates[0]))

    joint = float(np.linalg.norm(apart)) * noise_scale(epsilon, DELTA)  # 1, but for what is left for rounding
    alone = 1 / math.sqrt(1 + len(names))
    allowed = (math.expm1(epsilon) + 2 * DELTA) / (math.exp(epsilon) + 1)
    assert abs(joint - 1) < 0.01
    return Attack(
        advantage(1.0), advantage(alone), advantage(0.0), allowed, spent(noise_scale(epsilon, DELTA) * alone, DELTA)
    )


class _Silence:
    """No noise."""

    def standard_normal(self, shape: Any) -> Floats:
        return np.zeros(shape)


def findings(
    results: dict[tuple[str, int], dict[float, Result | None]], attacks: dict[float, Attack], trials: int, runs: int
) -> Findings:
    """The tables and what they say."""
    rows = []
    for (name, units), by_epsilon in results.items():
        cells = [
            "drowned" if found is None else f"{100 * found.held:.1f} %, {found.width / found.exact:.2f} ×"
            for found in by_epsilon.values()
        ]
        rows.append([DESIGNS[name].about, f"{units:,}", *cells])
    shown = [found for each in results.values() for found in each.values() if found is not None]
    least, most = (100 * pick(found.held for found in shown) for pick in (min, max))
    error = 100 * math.sqrt(0.05 * 0.95 / trials)
    attacked = [
        [
            f"{epsilon:g}",
            *(f"{100 * value:.1f} %" for value in (found.joint, found.alone, found.off, found.allowed)),
            f"{100 * (2 * ndtr(0.5 / noise_scale(epsilon, DELTA)) - 1):.1f} %",
            f"{found.spent_alone:.1f}",
        ]
        for epsilon, found in attacks.items()
    ]
    header = ["ε", "a release", "each sum alone", "no noise", "ε allows", "the Gaussian curve", "ε of each sum alone"]
    question = filled(
        f"""An attacker knows all units except one, and asks whether that one took part. All eight outcomes of that unit
        are at their bounds. The table gives the advantage of the likelihood ratio, that is, true minus false alarms at
        the best threshold, in {runs:,} releases with OpenDP's noise of each of the two worlds."""
    )
    answer = filled(
        """Noise that is calibrated to each sum alone looks like a release, but spends several times the ε that it
        claims. OpenDP's noise has no seed, so these shares differ between runs by about a point, and the best of many
        thresholds lies a point or two above the curve by chance."""
    )
    details = "\n\n".join(["## Who took part", question, markdown_table(header, attacked, 1), answer])
    return Findings(
        "Releases with noise",
        f"""A release adds noise to the sums of each arm and group. We simulated {trials:,} trials for each cell, with
        half of the units treated, δ = {DELTA:g} and 95 % intervals. The treatment adds a tenth to the outcome. Each
        cell gives the share of intervals that contain the true effect, and their median width divided by that of the
        same trials without noise, which have 128 groups (for shares, Welch's error). Shares of units with one record
        are released without groups, all others in 16 groups unless the row says 64. “Adjusted” means adjusted for a
        covariate from before the trial. “Drowned” means that the noise in the count of an arm is more than a tenth of
        it, so that no effect is shown.""",
        ["outcome", "units", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)],
        rows,
        f"""Intervals contain the true effect in {least:.1f} to {most:.1f} % of trials (Monte Carlo error {error:.1f}
        points). With 16 groups, an interval is 8 % wider because of its 15 degrees of freedom alone; the rest comes
        from noise. More groups pay off only where noise adds hardly any width.""",
        left=1,
        details=details,
        packages=("opendp",),
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2000, runs=5000, seed=1)
    cells = [(name, units) for name in DESIGNS for units in SIZES]
    results = {
        cell: study(*cell, options.trials, options.seed)
        for cell in counted(cells, len(cells), "designs and sizes of a release")
    }
    attacks = {epsilon: attack(epsilon, options.runs, options.seed) for epsilon in EPSILONS}
    publish(findings(results, attacks, options.trials, options.runs), NAME, options)
