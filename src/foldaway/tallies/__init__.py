"""The mergeable statistics, and what a trial holds of them under its plan."""

from collections.abc import Sequence

import msgspec

from foldaway.errors import EstimateError
from foldaway.plan import Plan
from foldaway.plan.vocabulary import SUMS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.arms import Arms
from foldaway.tallies.grouped import Grouped

__all__ = ["Arms", "Grouped", "Holding", "against", "arms_of", "empty_holding"]

Holding = Arms | Grouped
"""What a trial holds: moments of its arms, or sums by group."""


def empty_holding(plan: Plan) -> Holding:
    """What a trial of this plan holds before its first record."""
    return Grouped.empty(plan) if plan.keeps == SUMS else Arms.empty(plan)


def arms_of(tallies: Holding) -> Sequence[ArmTally]:
    """The tallies by arm, of a trial that keeps moments; a trial that keeps sums has none."""
    return tallies.arms if isinstance(tallies, Arms) else ()


def against(control: str, plan: Plan, tallies: Holding) -> tuple[Plan, Holding]:
    """The same records with another arm in the first place, as all others are compared with that.

    Raises:
        EstimateError: There is no such arm.
    """
    if control not in plan.arms:
        raise EstimateError(f"there is no arm {control!r}; the arms are {', '.join(plan.arms)}.")
    arms = [control, *(arm for arm in plan.arms if arm != control)]
    places = [list(plan.arms).index(arm) for arm in arms]
    turned = msgspec.structs.replace(plan, arms={arm: plan.arms[arm] for arm in arms})
    return turned, tallies.turned(turned, places)
