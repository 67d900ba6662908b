"""The audit of what a trial holds, or held at two times: every attack that fits it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from foldaway.auditing import cells, covariates, moments
from foldaway.auditing.cells import attack_cells, cells_of_arms
from foldaway.auditing.covariates import attack_covariates
from foldaway.auditing.finding import Audit, Finding, Range
from foldaway.auditing.moments import attack_combinations, attack_replicates, scores_of_arms
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.outcomes import Exits
from foldaway.tallies import Held, arms_of, grouped_of
from foldaway.tallies.levels import OTHERS
from foldaway.tallies.moments import Powers

_ONE_STATE = "Keep one state of a trial: save over the one before, and back up neither of them in the clear."

ON_SUMS = (cells.ALONE, cells.PAIR, cells.LARGEST, cells.SPARSE)
ON_MOMENTS = (
    moments.ALONE,
    moments.TWO,
    moments.SOLE,
    covariates.VALUES,
    covariates.OUTLYING,
    moments.RESAMPLED,
)
HISTOGRAMS = "histograms"

_LESS_BASELINE = (
    "Few records of an arm have this. Leave the column out of `baseline`, let it have fewer levels, or wait for more "
    "records; the end of the trial destroys the sums."
)

# What is read from a histogram, and what would tell less.
_QUANTILES = (
    "quantiles",
    "A coarser `resolution` tells less, and shares above a few thresholds tell far less.",
)
_SURVIVAL = "survival curves", "Fewer `bins` tell less."


def audit(plan: Plan, tallies: Held, before: Held | None = None) -> Audit:
    """How many people could be solved for by whoever has what a trial holds in the clear.

    Args:
        plan: The plan.
        tallies: What the trial holds.
        before: What it held earlier. The difference of the two is what the records in between would have given, so the
            attacks are carried out on that.
    """
    findings = list(_findings(plan, tallies, before))
    if before is not None:
        findings = [msgspec.structs.replace(each, remedy=_ONE_STATE) for each in findings]
    return Audit(
        trial=plan.name,
        records=sum(tallies.counts) - (0 if before is None else sum(before.counts)),
        findings=findings,
        attacks=list(dict.fromkeys(_attacks(tallies))),
    )


def _attacks(tallies: Held) -> Iterator[str]:
    yield from ON_MOMENTS if tallies.arms is not None else ()
    yield from ON_SUMS if tallies.plain() is not None else ()
    yield from [HISTOGRAMS] if tallies.histograms else ()


def _findings(plan: Plan, now: Held, before: Held | None) -> Iterator[Finding]:
    if arms := arms_of(now):
        earlier_arms = None if before is None else arms_of(before)
        scores = scores_of_arms(arms, earlier_arms)
        yield from attack_combinations(plan, scores)
        powers = [each for each in map(Powers.of, arms) if each is not None]
        if earlier_arms is not None:  # of the records in between there are only differences of sums
            powers = [Powers(each, np.zeros(len(plan.regressors))) for each in scores]
        yield from attack_covariates(plan, scores, powers)
        if before is None:
            yield from attack_replicates(plan, arms)
    if (sums := now.plain()) is not None:
        yield from _attack_histograms(plan, now, before)
        earlier = None if before is None else before.plain()
        for column, value in enumerate(plan.values):
            yield from attack_cells(plan, value.name, cells_of_arms(sums, column, earlier))
        yield from _attack_baseline(plan, now, before)


def _attack_baseline(plan: Plan, now: Held, before: Held | None) -> Iterator[Finding]:
    """The same attacks on the sums of the baseline table, of which each arm is one cell."""
    held, earlier = (grouped_of(each).baseline if plan.baseline and each else None for each in (now, before))
    if held is None:
        return
    then = {} if earlier is None else earlier.by_trait()
    then = {trait: sums for trait, sums in then.items() if trait[1] != OTHERS}  # which are others now
    for (column, level), sums in held.by_trait().items():
        name = f"{column} (baseline)" if level is None else f"{column}: {level} (baseline)"
        for found in attack_cells(plan, name, cells_of_arms(sums, 0, then.get((column, level)))):
            yield msgspec.structs.replace(found, remedy=_LESS_BASELINE)


def _attack_histograms(plan: Plan, now: Held, before: Held | None) -> Iterator[Finding]:
    """Read them: how many records have their value told to within a tenth; or how many of those between two states."""
    for place, bins in enumerate(plan.bins):
        counts, weighted = _binned(plan, now, place)
        if before is not None:
            counts = counts - _binned(plan, before, place)[0]
        if weighted:  # a sum of weights is at least one record's
            counts = (counts > 0).astype(np.float64)
        of, less = _SURVIVAL if isinstance(bins, Exits) else _QUANTILES
        near = [math.isfinite(high - low) and Range(low, high).near for low, high in bins.ranges]
        yield from Finding.of(
            round(float(counts[..., near].sum())),
            exact=0,
            attack=HISTOGRAMS,
            outcome=bins.column,
            numbers=f"the number of records by arm, group and bin, from which {of} are read",
            remedy=f"{of.capitalize()} need the values themselves, though of nobody in particular: end the trial when "
            f"it ends. {less}",
        )


def _binned(plan: Plan, held: Held, place: int) -> tuple[Floats, bool]:
    """A histogram, by stratum where that is kept, which tells more; and whether it has sums of weights."""
    strata = grouped_of(held).strata
    if strata is None or place not in plan.exits_by_stratum:
        return held.histograms[place].counts, plan.weighted
    return strata.histograms[plan.exits_by_stratum.index(place)].counts, plan.weight is not None
