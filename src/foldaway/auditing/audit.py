"""The audit of what a trial holds, or held at two times: every attack that fits it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from foldaway.auditing import cells, moments
from foldaway.auditing.cells import attack_cells, cells_of_arms
from foldaway.auditing.finding import Audit, Finding, Range
from foldaway.auditing.moments import attack_combinations, attack_replicates, scores_of_arms
from foldaway.plan import Plan
from foldaway.tallies import Arms, Grouped, Holding

_ONE_STATE = "Keep one state of a trial: save over the one before, and back up neither of them in the clear."

ON_SUMS = (cells.ALONE, cells.PAIR, cells.LARGEST, cells.SPARSE)
ON_MOMENTS = (moments.ALONE, moments.TWO, moments.SOLE, moments.RESAMPLED)
HISTOGRAMS = "histograms"


def audit(plan: Plan, tallies: Holding, before: Holding | None = None) -> Audit:
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
        attacks=ON_MOMENTS if isinstance(tallies, Arms) else (*ON_SUMS, *([HISTOGRAMS] if plan.bins else [])),
    )


def _findings(plan: Plan, now: Holding, before: Holding | None) -> Iterator[Finding]:
    if isinstance(now, Arms):
        arms = before.arms if isinstance(before, Arms) else None
        yield from attack_combinations(plan, scores_of_arms(now.arms, arms))
        if arms is None:
            yield from attack_replicates(plan, now.arms)
        return
    then = None if before is None or isinstance(before, Arms) else before
    yield from _attack_histograms(plan, now, then)
    earlier = None if then is None else then.plain()
    for column, value in enumerate(plan.values):
        yield from attack_cells(value.name, cells_of_arms(now.plain(), column, earlier))


def _attack_histograms(plan: Plan, now: Grouped, before: Grouped | None) -> Iterator[Finding]:
    """Read them: how many records have their value told to within a tenth; or how many of those between two states."""
    for place, bins in enumerate(plan.bins):
        counts = now.histograms[place].counts - (0 if before is None else before.histograms[place].counts)
        if plan.weighted:  # a sum of weights is at least one record's
            counts = (counts > 0).astype(np.float64)
        near = [Range(low, high).near for low, high in zip(bins.edges[:-1], bins.edges[1:], strict=True)]
        yield from Finding.of(
            round(float(counts[..., 1:-1][..., near].sum())),
            exact=0,
            attack=HISTOGRAMS,
            outcome=bins.column,
            numbers="the number of records by arm, group and bin, from which quantiles are read",
            remedy="Quantiles need the values themselves, though of nobody in particular: seal the trial when it "
            "ends. A coarser `resolution` tells less, and shares above a few thresholds tell far less.",
        )
