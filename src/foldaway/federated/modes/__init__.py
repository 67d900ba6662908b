"""The modes of a federated trial, one object each.

A new one is a class here and a name in ``MODES``; its name and what it needs of a plan are a line of the vocabulary.
"""

from __future__ import annotations

from foldaway.errors import PlanError
from foldaway.federated.messages import MOST_BYTES
from foldaway.federated.messages import encoded as _encoded
from foldaway.federated.modes.mode import Mode, SiteMode
from foldaway.federated.modes.one_round import Delta, OneMessage
from foldaway.federated.modes.scores import Scores
from foldaway.federated.modes.sums import SumsByGroup
from foldaway.plan import Plan

MODES: dict[str, Mode] = {mode.name: mode for mode in (OneMessage(), Scores(), Delta(), SumsByGroup())}
"""Every mode by its name in a plan."""

# What other clients' MessagePack may need more than ours.
_SLACK = 64


def mode_of(plan: Plan) -> Mode:
    """The mode of a federated plan.

    Raises:
        PlanError: The plan is not federated.

    Example:
        >>> mode_of(Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="scores")).replies
        True
    """
    if plan.federated is None:
        raise PlanError(f"the plan {plan.name} does not say what devices send: it needs `federated`.")
    return MODES[plan.federated.mode]


def site_mode_of(plan: Plan) -> SiteMode:
    """The mode of a federated plan for sites.

    Raises:
        PlanError: The plan is not for sites.
    """
    mode = None if plan.federated is None or plan.unit is None else mode_of(plan)
    if not isinstance(mode, SiteMode):
        raise PlanError(
            f'the plan {plan.name} is not for sites: it needs `unit` and `federated` = "sums"; or "one-message" with '
            "`complete_units` = true, a promise that all records of a unit are in one file."
        )
    return mode


def most_bytes(plan: Plan) -> int:
    """How long a message of the plan's devices can be."""
    longest = max(len(_encoded(message)) for message in mode_of(plan).longest(plan))
    return min(longest + _SLACK, MOST_BYTES)
