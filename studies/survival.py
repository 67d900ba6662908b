"""Do intervals of restricted means cover, and does the log-rank test hold its size, with and without frailty?

Every trial goes through the functions that a trial is read with: bins of a plan, histograms of exits by group of units,
and the errors by group or of independent exits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from foldaway.federated.modes.site_exits import at_the_middle, told_exits
from foldaway.federated.modes.site_groups import neighbours, regrouped
from foldaway.inference.intervals import critical
from foldaway.inference.levels import difference_of
from foldaway.inference.reading.survival import levels_from
from foldaway.inference.strata import over_strata
from foldaway.inference.survival import Exited, contrast_by_group, contrast_of_records
from foldaway.numerics.block import Floats
from foldaway.plan import Survival
from foldaway.tallies.histogram import MOST_GROUPS
from studies.findings import Findings, counted, options_of, publish

NAME = "survival"
CONFIDENCE = 0.95
OUTCOME = Survival("time", "event", until=1.0, bins=40)
HAZARD = 1.2
BENEFIT = 0.7

# Of the strata by turns: by what hazards are multiplied, and the share of units that are treated.
LEVELS, SHARES = (0.5, 1.0, 2.0), (1 / 2, 2 / 3, 1 / 4)

# Exits of so many trials are in memory at once.
_TOGETHER = 50


class Design(NamedTuple):
    """Units, their exits on average, the variance of their frailty, the share of units that are treated, and strata.

    With strata, each has hazards and a share of its own. If each is a site, `least` units of every arm are in each of
    its groups, and leave in each stretch of time; it may have sent before, after half of the units.
    """

    units: int
    exits: float = 1
    frailty: float = 0.0
    treated: float = 0.5
    strata: int = 1
    least: int | None = None
    sendings: int = 1

    @property
    def shares(self) -> Floats:
        """The probabilities of the arms, by stratum."""
        treated = np.resize(SHARES, self.strata) if self.strata > 1 else np.array([self.treated])
        return np.stack([1 - treated, treated], axis=1)

    @property
    def hazards(self) -> Floats:
        """The control's hazard, by stratum."""
        return HAZARD * (np.resize(LEVELS, self.strata) if self.strata > 1 else np.ones(1))

    @property
    def clustered(self) -> bool:
        """Whether errors are by group: units have several exits, or sites send groups."""
        return self.exits > 1 or self.least is not None

    @property
    def what(self) -> str:
        """In words."""
        strata = f" in {self.strata} strata" if self.strata > 1 else ""
        if self.least is not None:
            sent = "" if self.sendings == 1 else ", sent twice"
            return f"{self.units:,} exits at {self.strata} sites, at least {self.least} in a stretch{sent}"
        if not self.clustered:
            return f"{self.units:,} exits{strata}"
        alike = f", frailty of variance {self.frailty:g}" if self.frailty else ", without frailty"
        return f"{self.units:,} units, {self.units * self.exits:,.0f} exits{strata}{alike}"


DESIGNS = (
    Design(100),
    Design(300),
    Design(1_000),
    Design(1_000, treated=0.1),
    Design(100, 5),
    Design(100, 5, 0.5),
    Design(300, 3, 1.0),
    Design(1_000, 3, 0.5, 0.2),
    Design(300, strata=3),
    Design(1_000, strata=20),
    Design(300, 3, 0.5, strata=3),
    Design(600, strata=3, least=5),
    Design(600, strata=3, least=10),
    Design(600, strata=3, least=5, sendings=2),
    Design(2_000, strata=5, least=10),
)


class Found(NamedTuple):
    """Of many trials with a hazard ratio: what intervals covered, and how often the log-rank test rejected.

    Attributes:
        mean_covers: The share of intervals of the restricted means' difference that covered.
        error: The error told of that difference, next to the spread of the estimates.
        rejects: The share of log-rank tests below 5 %.
        ratio_covers: The share of intervals of the hazard ratio that covered; NaN where frailty leaves no one ratio.
    """

    mean_covers: float
    error: float
    rejects: float
    ratio_covers: float


def histograms(design: Design, ratio: float, trials: int, rng: np.random.Generator) -> Floats:
    """Trials of exits by stratum, arm, group and bin."""
    groups = MOST_GROUPS if design.clustered else 1
    size = np.ones(design.units, dtype=int)
    if design.clustered:
        size = 1 + rng.poisson(rng.gamma(2, (design.exits - 1) / 2, design.units))
    unit = np.repeat(np.arange(design.units), size)
    stratum = np.arange(design.units) % design.strata
    treated = (rng.random((trials, design.units)) < design.shares[stratum, 1])[:, unit]
    group = rng.integers(0, groups, (trials, design.units))[:, unit]
    hazard = design.hazards[stratum[unit]] * np.where(treated, ratio, 1.0)
    if design.frailty:
        hazard *= rng.gamma(1 / design.frailty, design.frailty, (trials, design.units))[:, unit]
    time, until = rng.exponential(size=hazard.shape) / hazard, rng.uniform(0.2, 2.5, hazard.shape)
    columns = {"time": np.minimum(time, until).ravel(), "event": (time <= until).ravel().astype(float)}
    bins = OUTCOME.binning.codes(columns).reshape(time.shape)
    shape = trials, design.strata, 2, groups, OUTCOME.binning.number
    cell = (np.arange(trials)[:, None] * design.strata + stratum[unit]) * 2 + treated
    place = (cell * groups + group) * shape[-1] + bins
    counts = np.bincount(place.ravel(), minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    if design.least is not None:
        for trial in counts:
            for site, held in enumerate(trial):
                trial[site] = as_sent(design, held, rng)
    return counts


def as_sent(design: Design, counts: Floats, rng: np.random.Generator) -> Floats:
    """A site's exits by arm, group and bin, in the groups and at the times that it sends."""
    assert design.least is not None
    groups, before = counts.shape[1], np.empty((0, len(counts), counts.shape[-1]))
    if design.sendings > 1:
        half = rng.binomial(counts.astype(int), 0.5).astype(np.float64)
        before = told_exits(half, before, design.least).sum(axis=1)[None]
    place = neighbours(counts.sum(axis=-1).astype(np.int64), design.least)
    dealt = (rng.integers(groups) + place * groups // (int(place[-1]) + 1)) % groups
    return regrouped(at_the_middle(told_exits(counts, before, design.least)), dealt)


def difference(design: Design, ratio: float) -> float:
    """The true difference of the restricted means, of times that are not rounded: over strata of one size."""
    times = np.linspace(0, OUTCOME.until, 20_001)

    def mean(rate: float) -> float:
        total = rate * times
        survival = (1 + design.frailty * total) ** (-1 / design.frailty) if design.frailty else np.exp(-total)
        return float(np.trapezoid(survival, times))

    return float(np.mean([mean(hazard * ratio) - mean(hazard) for hazard in design.hazards]))


def study(design: Design, ratio: float, trials: int, seed: int) -> Found:
    """One design."""
    strata = [design.strata] if design.strata > 1 else []
    strata += [] if design.least is None else [design.least, design.sendings]
    rng = np.random.default_rng([seed, design.units, int(100 * design.frailty), int(100 * design.treated), *strata])
    effect, seen = difference(design, ratio), []
    for start in range(0, trials, _TOGETHER):
        together = histograms(design, ratio, min(_TOGETHER, trials - start), rng)
        seen += [_trial(design, counts, effect, ratio) for counts in together]
    estimate, error, covers, rejects, ratios = np.array(seen, dtype=np.float64).T
    alike = np.nan if design.frailty and ratio != 1 else float(ratios.mean())
    return Found(float(covers.mean()), float(np.sqrt(np.mean(error**2)) / estimate.std()), float(rejects.mean()), alike)


def whole(design: Design, counts: Floats) -> tuple[Exited, Exited | None]:
    """The exits of all strata, which weigh 1/π there; of independent ones also the squares of the weights."""
    if design.strata == 1:
        return Exited.of(counts[0]), None
    cells = counts.reshape(-1, *counts.shape[2:])
    weighted, squares = (over_strata(cells, design.shares**-power) for power in (1, 2))
    return Exited.of(weighted), None if design.clustered else Exited.of(squares[:, 0])


def _trial(design: Design, counts: Floats, effect: float, ratio: float) -> tuple[Any, ...]:
    exits = Exited.of(counts)
    apart = difference_of(levels_from(OUTCOME, *whole(design, counts), by_group=design.clustered), 1)
    error = float(np.sqrt(apart.variance))
    covers = abs(float(apart.estimate) - effect) <= critical(CONFIDENCE, float(apart.df)) * error
    found = contrast_by_group(exits) if design.clustered else contrast_of_records(exits.total())
    away = critical(CONFIDENCE, float(found.df)) * np.sqrt(found.log_variance)
    there = abs(found.log_ratio - np.log(ratio)) <= away
    return apart.estimate, error, covers, found.p_value < 1 - CONFIDENCE, there


def findings(cells: dict[tuple[Design, float], Found], trials: int) -> Findings:
    """The page."""
    covers = [100 * each.mean_covers for each in cells.values()]
    sizes = [100 * each.rejects for (_, ratio), each in cells.items() if ratio == 1]
    ratios = [100 * each.ratio_covers for each in cells.values() if np.isfinite(each.ratio_covers)]
    bins = OUTCOME.bins
    return Findings(
        title="Survival: coverage and size",
        question=f"""We drew {trials:,} trials of each design, with a hazard ratio of 1 and of {BENEFIT:g}. Times have a
        constant hazard, which a unit's frailty (gamma, mean 1) multiplies; follow-up ends at 1, when about
        {100 * np.exp(-HAZARD):.0f} % of the control are left, and for many before, at random. Units have unequal
        numbers of exits. Strata have hazards {_listed(LEVELS)} times as high by turns, and
        {_listed(f"{100 * share:.0f} %" for share in SHARES)} of their units are treated; so of sites, which send exits
        at the middle of stretches of time in which enough of every arm have left. Each trial was counted in
        {bins} bins, by arm for independent exits and by arm and
        {MOST_GROUPS} groups for units, and read as `fa.Survival` reads it. The true difference of the restricted means
        is that of times that are not rounded to bins. Intervals are at 95 %; with {trials:,} trials a share of 95 % is
        uncertain by {100 * 1.96 * np.sqrt(0.05 * 0.95 / trials):.1f} points. “Error” is the root mean square of the
        standard errors, divided by the standard deviation of the estimates. With frailty the hazard ratio of the
        population changes with time, so none is covered.""",
        header=["design", "treated", "hazards", "mean covers", "error", "log-rank rejects", "ratio covers"],
        rows=[_row(design, ratio, found) for (design, ratio), found in cells.items()],
        answer=f"""Intervals of the restricted means' difference cover in {min(covers):.1f} to {max(covers):.1f} % of
        the trials. Where the hazards are the same, the log-rank test rejects at 5 % in {min(sizes):.1f} to
        {max(sizes):.1f} %. Intervals of the hazard ratio cover in {min(ratios):.1f} to {max(ratios):.1f} %.""",
        left=2,
        packages=("numpy",),
    )


def _listed(values: Iterable[Any]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}"


def _row(design: Design, ratio: float, found: Found) -> list[str]:
    covered = "–" if np.isnan(found.ratio_covers) else f"{100 * found.ratio_covers:.1f} %"
    return [
        design.what,
        f"{100 * design.treated:.0f} %" if design.strata == 1 else "by stratum",
        f"{ratio:g}",
        f"{100 * found.mean_covers:.1f} %",
        f"{found.error:.2f}",
        f"{100 * found.rejects:.1f} %",
        covered,
    ]


def main(arguments: Sequence[str]) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2_000, seed=1)
    cases = [(design, ratio) for design in DESIGNS for ratio in (1.0, BENEFIT)]
    cells = {case: study(*case, options.trials, options.seed) for case in counted(cases, len(cases), "cells")}
    publish(findings(cells, options.trials), NAME, options)
