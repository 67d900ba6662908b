"""Shares as people read them: in per cent, and their differences in percentage points."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace
from typing import TypeVar

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.looks_taken import ArmLook
from foldaway.effects.segment import BySegment
from foldaway.plan import Outcome, Plan

# What a row or a look has in the outcome's own unit of measure; its other numbers are the same in any unit.
_MEASURED = (
    *("estimate", "std_error", "threshold", "control_level", "ci_lower", "ci_upper"),
    *("anytime_ci_lower", "anytime_ci_upper", "percentile_ci_lower", "percentile_ci_upper"),
)
HUNDRED = 100.0

F = TypeVar("F", bound=Findings)
S = TypeVar("S", Effect, ArmLook)


def in_percent(effects: F) -> F:
    """The effects for a person: of outcomes that are shares, every number in per cent, the margins of rows with them.

    What machines get stays as it is, and so does the plan of the effects that come in.
    """
    shares = shares_of(effects.plan)
    if not shares:
        return effects
    return replace(
        effects,
        rows=[_scaled(row) if row.outcome in shares else row for row in effects],
        segments=[_scaled_segment(each) if each.outcome in shares else each for each in effects.segments],
        looks=[
            msgspec.structs.replace(look, arms=tuple(map(_scaled, look.arms))) if look.outcome in shares else look
            for look in effects.looks
        ],
        plan=_in_percent(effects.plan, shares),
    )


def shares_of(plan: Plan) -> Collection[str]:
    """The names of the outcomes that are shares."""
    return {outcome.name for outcome in plan.outcomes if outcome.LEVEL == "share"}


def _in_percent(plan: Plan, shares: Collection[str]) -> Plan:
    """The plan for reading alone: its shares are measured in per cent."""
    read = copy(plan)
    outcomes = [_measured(outcome) if outcome.name in shares else outcome for outcome in plan.outcomes]
    msgspec.structs.force_setattr(read, "outcomes", tuple(outcomes))
    return read


def _measured(outcome: Outcome) -> Outcome:
    read = copy(outcome)
    msgspec.structs.force_setattr(read, "measure", f"% {outcome.measure}".rstrip())
    return read


def _scaled_segment(each: BySegment) -> BySegment:
    random = None if each.random is None else each.random.scaled(HUNDRED)
    return msgspec.structs.replace(each, effects=list(map(_scaled, each.effects)), random=random)


def _scaled(row: S) -> S:
    there = {name: getattr(row, name) for name in _MEASURED if getattr(row, name, None) is not None}
    return msgspec.structs.replace(row, **{name: HUNDRED * number for name, number in there.items()})
