"""Do intervals of quantile effects cover, for independent records and for units with several?

Every cell goes through the functions that a trial is read with: bins of a plan, histograms by group, the inverse of the
clustered distribution function. Beside it stands the jackknife of the quantiles themselves, on the same histograms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from foldaway.inference.jackknife import jackknifed
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.reading.quantile import LEAST_BEYOND, Binned, quantiles
from foldaway.plan.outcomes import Bins
from foldaway.tallies.histogram import MOST_GROUPS
from studies.findings import Findings, counted, options_of, publish

NAME = "quantiles"
CONFIDENCE = 0.95
QUANTILES = (0.5, 0.95, 0.99)
EFFECT = 0.1
BINS = Bins("y", 1e-3, 1e3, 0.01)

# Histograms of so many trials are in memory at once.
_TOGETHER = 40


class Design(NamedTuple):
    """Units, their records on average, how alike these are, and the share of units that are treated."""

    units: int
    records: float = 1
    alike: float = 0.0
    treated: float = 0.5

    @property
    def clustered(self) -> bool:
        """Whether units have several records."""
        return self.records > 1

    @property
    def what(self) -> str:
        """In words."""
        if not self.clustered:
            return f"{self.units:,} records"
        return f"{self.units:,} units, {self.units * self.records:,.0f} records, correlation {self.alike:g}"


DESIGNS = (
    Design(200),
    Design(2_000),
    Design(20_000),
    Design(2_000, treated=0.1),
    Design(100, 20, 0.3),
    Design(400, 5, 0.3),
    Design(400, 5, 0.8),
    Design(2_000, 10, 0.3),
    Design(1_000, 10, 0.3, 0.1),
)


class Found(NamedTuple):
    """Of many trials: how many told an interval, how many of these covered, and the same of the plain jackknife.

    Attributes:
        told: The share of trials with an interval.
        covers: The share of those whose interval covered.
        error: The error told, next to the spread of the estimates.
        plain: The share that the jackknife of the quantiles covered; NaN for independent records.
    """

    told: float
    covers: float
    error: float
    plain: float


def histograms(design: Design, trials: int, rng: np.random.Generator) -> Binned:
    """Trials of lognormal outcomes by arm and group; treated ones are larger by a tenth."""
    groups = MOST_GROUPS if design.clustered else 1
    size = np.ones(design.units, dtype=int)
    if design.clustered:  # unequal: from one record to several times the average
        size = 1 + rng.poisson(rng.gamma(2, (design.records - 1) / 2, design.units))
    unit = np.repeat(np.arange(design.units), size)
    treated = (rng.random((trials, design.units)) < design.treated)[:, unit]
    group = rng.integers(0, groups, (trials, design.units))[:, unit]
    own = rng.standard_normal((trials, len(unit))) * np.sqrt(1 - design.alike)
    if design.alike:
        own += rng.standard_normal((trials, design.units))[:, unit] * np.sqrt(design.alike)
    bins = BINS.of((np.exp(own) * (1 + EFFECT * treated)).ravel()).reshape(own.shape)
    shape = trials, 2, groups, BINS.number
    place = ((np.arange(trials)[:, None] * 2 + treated) * groups + group) * BINS.number + bins
    counts = np.bincount(place.ravel(), minlength=int(np.prod(shape))).reshape(shape)
    return Binned(counts.astype(np.float64), BINS.edges)


def plain_jackknife(binned: Binned, p: float) -> Levels:
    """The quantiles with the spread that they show without each group."""
    whole = binned.counts.sum(axis=-2, keepdims=True)
    without = np.moveaxis(whole - binned.counts, -2, -3)[..., None, :]  # trials, groups, arms, one group, bins
    weight = np.swapaxes(binned.counts.sum(axis=-1), -1, -2)
    value = quantiles(binned, p, by_group=False).levels.value
    return jackknifed(value, quantiles(Binned(without, binned.edges), p, by_group=False).levels.value, weight)


def inside(levels: Levels, effect: float) -> tuple[Any, Any, Any]:
    """Whether intervals cover the effect; the estimates and their errors."""
    found = difference_of(levels, 1)
    with np.errstate(invalid="ignore"):
        error = np.sqrt(found.variance)
        return np.abs(found.estimate - effect) <= error * stdtrit(found.df, 0.5 + CONFIDENCE / 2), found.estimate, error


def study(design: Design, trials: int, seed: int) -> dict[float, Found]:
    """One design, all quantiles."""
    rng = np.random.default_rng([seed, design.units, int(100 * design.alike), int(100 * design.treated)])
    seen: dict[float, list[Any]] = {p: [] for p in QUANTILES}
    for start in range(0, trials, _TOGETHER):
        binned = histograms(design, min(_TOGETHER, trials - start), rng)
        for p in QUANTILES:
            effect = EFFECT * float(np.exp(NormalDist().inv_cdf(p)))
            found = quantiles(binned, p, by_group=design.clustered)
            told = ~(found.outside | found.few).any(axis=-1)
            plain = inside(plain_jackknife(binned, p), effect)[0] if design.clustered else np.full(told.shape, np.nan)
            seen[p].append([told, *inside(found.levels, effect), plain])
    return {p: _found(*np.concatenate([np.array(part) for part in parts], axis=1)) for p, parts in seen.items()}


def _found(told: Any, covers: Any, estimate: Any, error: Any, plain: Any) -> Found:
    here = told.astype(bool)
    if here.sum() < 2:
        return Found(float(here.mean()), np.nan, np.nan, np.nan)
    spread = np.sqrt(np.mean(error[here] ** 2)) / estimate[here].std()
    return Found(float(here.mean()), float(covers[here].mean()), float(spread), float(plain[here].mean()))


def findings(cells: dict[Design, dict[float, Found]], trials: int) -> Findings:
    """The page."""
    rows = [list(row) for design, found in cells.items() for row in _rows(design, found)]
    often = [each for found in cells.values() for each in found.values() if each.told > 0.9]
    rarely = [each for found in cells.values() for each in found.values() if 0.02 < each.told <= 0.9]
    lowest, highest = (100 * pick(each.covers for each in often) for pick in (min, max))
    plain = [each.plain for each in often if not np.isnan(each.plain)]
    low, high = (100 * pick(plain, default=np.nan) for pick in (min, max))
    answer = f"""Where nearly all trials show an interval, it covers in {lowest:.1f} to {highest:.1f} % of them. A
    jackknife of the quantiles themselves, on the same histograms, covers in {low:.1f} to {high:.1f} %: when a group is
    left out, a quantile jumps from one record to the next."""
    if rarely:
        answer += f"""

        Where about {LEAST_BEYOND} records, or groups of units, lie beyond a quantile, only some trials show an
        interval, and {100 * min(each.covers for each in rarely):.1f} % or more of these cover. In such trials more
        records than usual lie beyond the quantile, so their estimates are not quite typical."""
    return Findings(
        title="Quantile effects: coverage",
        question=f"""We drew {trials:,} trials of each design. Outcomes are lognormal, and a tenth larger for treated
        units, so the true effect on a quantile is a tenth of it. Units have unequal numbers of records, and the
        logarithms of a unit's records have the correlation given. Each trial was counted in bins of 1 %, by arm for
        independent records and by arm and {MOST_GROUPS} groups for units, and read as `fa.Quantile` reads it. An
        interval is shown (“told”) only if enough records lie beyond the quantile. Intervals are at 95 %; with
        {trials:,} trials a coverage is uncertain by {100 * 1.96 * np.sqrt(0.05 * 0.95 / trials):.1f} points. “Error” is
        the root mean square of the standard errors shown, divided by the standard deviation of the estimates.""",
        header=["design", "treated", "quantile", "told", "covers", "error", "plain jackknife covers"],
        rows=rows,
        answer=answer,
        left=3,
        packages=("numpy",),
    )


def _rows(design: Design, found: dict[float, Found]) -> Iterator[Sequence[str]]:
    for p, each in found.items():
        shares = [f"{100 * share:.1f} %" if np.isfinite(share) else "–" for share in (each.covers, each.plain)]
        error = f"{each.error:.2f}" if np.isfinite(each.error) else "–"
        names = design.what, f"{100 * design.treated:.0f} %", f"p{100 * p:g}"
        yield *names, f"{100 * each.told:.0f} %", shares[0], error, shares[1]


def main(arguments: Sequence[str]) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2_000, seed=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cells = {
            design: study(design, options.trials, options.seed) for design in counted(DESIGNS, len(DESIGNS), "designs")
        }
    publish(findings(cells, options.trials), NAME, options)
