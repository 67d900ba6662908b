"""The mergeable statistics, and what a trial holds of them under its plan."""

from collections.abc import Sequence

import msgspec

from foldaway.errors import EstimateError
from foldaway.plan import Plan
from foldaway.plan.vocabulary import SUMS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.arms import Arms
from foldaway.tallies.grouped import Grouped

__all__ = ["Arms", "Grouped", "Holding", "against", "arms_of", "empty_holding", "is_released", "restored_holding"]

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


def arms_of(tallies: Holding) -> Sequence[ArmTally]:
    """The tallies by arm, of a trial that keeps moments; a trial that keeps sums has none."""
    return tallies.arms if isinstance(tallies, Arms) else ()


def is_released(tallies: Holding) -> bool:
    """Whether the sums are those of a release, with noise, and nothing exact is left."""
    return isinstance(tallies, Grouped) and tallies.released


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
