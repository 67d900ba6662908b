"""The audit of what a trial holds, or held at two times: every attack that fits it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foldaway.auditing import cells, combinations, histograms, replicates
from foldaway.auditing.cells import attack_cells, cells_of_arms
from foldaway.auditing.combinations import attack_combinations, scores_of_arms
from foldaway.auditing.finding import Audit, Finding
from foldaway.auditing.histograms import attack_histograms
from foldaway.auditing.replicates import attack_replicates
from foldaway.plan import Plan
from foldaway.tallies import Arms, Holding

_ONE_STATE = "Keep one state of a trial: save over the one before, and back up neither of them in the clear."

ON_SUMS = (cells.ALONE, cells.PAIR, cells.LARGEST, cells.SPARSE)
ON_MOMENTS = (combinations.ALONE, combinations.TWO, combinations.SOLE, replicates.NAME)


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
        attacks=ON_MOMENTS if isinstance(tallies, Arms) else (*ON_SUMS, *([histograms.NAME] if plan.bins else [])),
    )


def _findings(plan: Plan, now: Holding, before: Holding | None) -> Iterator[Finding]:
    if isinstance(now, Arms):
        arms = before.arms if isinstance(before, Arms) else None
        yield from attack_combinations(plan, scores_of_arms(now.arms, arms))
        if arms is None:
            yield from attack_replicates(plan, now.arms)
        return
    then = None if before is None or isinstance(before, Arms) else before
    yield from attack_histograms(plan, now.histograms, None if then is None else then.histograms)
    earlier = None if then is None else then.plain()
    for column, value in enumerate(plan.values):
        yield from attack_cells(value.name, cells_of_arms(now.plain(), column, earlier))
