"""The mergeable statistics, and what a trial holds of them under its plan."""

from foldaway.plan import Plan
from foldaway.plan.vocabulary import SUMS
from foldaway.tallies.arms import Arms
from foldaway.tallies.grouped import Grouped

__all__ = ["Arms", "Grouped", "Holding", "empty_holding", "restored_holding"]

Holding = Arms | Grouped
"""What a trial holds: moments of its arms, or sums by group."""


def _kind(plan: Plan) -> type[Arms] | type[Grouped]:
    return Grouped if plan.keeps == SUMS else Arms


def empty_holding(plan: Plan) -> Holding:
    """What a trial of this plan holds before its first record."""
    return _kind(plan).empty(plan)


def restored_holding(state: object, plan: Plan) -> Holding:
    """What a trial of this plan holds, from its state."""
    return _kind(plan).restore(state, plan)
