"""The audit of what a trial holds: every attack that fits it."""

from __future__ import annotations

from collections.abc import Iterator

from foldaway.auditing import cells, combinations, replicates
from foldaway.auditing.cells import attack_cells
from foldaway.auditing.combinations import attack_combinations
from foldaway.auditing.finding import Audit, Finding
from foldaway.auditing.replicates import attack_replicates
from foldaway.plan import Plan
from foldaway.tallies import Arms, Holding

ON_SUMS = (cells.ALONE, cells.PAIR, cells.LARGEST, cells.SPARSE)
ON_MOMENTS = (combinations.ALONE, combinations.TWO, combinations.SOLE, replicates.NAME)


def audit(plan: Plan, tallies: Holding) -> Audit:
    """How many people could be solved for from what a trial holds, by whoever has it in the clear."""
    return Audit(
        trial=plan.name,
        records=sum(tallies.counts),
        findings=list(_findings(plan, tallies)),
        attacks=ON_MOMENTS if isinstance(tallies, Arms) else ON_SUMS,
    )


def _findings(plan: Plan, tallies: Holding) -> Iterator[Finding]:
    if isinstance(tallies, Arms):
        yield from attack_combinations(plan, tallies.arms)
        yield from attack_replicates(plan, tallies.arms)
    elif tallies.sums is not None:
        for column, outcome in enumerate(plan.outcomes):
            yield from attack_cells(outcome, tallies.sums, column)
