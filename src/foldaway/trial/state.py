"""A trial as it is written, and the plan that it may be read under."""

from __future__ import annotations

from typing import Any

import msgspec

from foldaway.effects.looks_taken import Look
from foldaway.errors import PlanError, StateError, instead_of
from foldaway.keeping.cohort import Told
from foldaway.keeping.state import unpack
from foldaway.plan import Plan
from foldaway.records import Fault


class TrialState(msgspec.Struct, rename={"ended": "sealed"}):  # as states of earlier versions call it
    """What a trial keeps, and the plan it was kept under, in canonical form."""

    plan: str
    tallies: Any
    dropped: dict[str, int]
    faults: list[Fault]
    key_mark: bytes
    ended: bool
    told: Told | None = None
    labels: list[str] | msgspec.UnsetType = msgspec.UNSET  # of a trial of answers of databases
    newcomers: tuple[int, int, list[int]] | None = None  # between workers of one run alone
    looks: tuple[Look, ...] | msgspec.UnsetType = msgspec.UNSET  # of a plan with planned looks


def read_state(data: bytes, plan: Plan | None) -> tuple[TrialState, Plan]:
    """A state, and the plan that it was made under: if one is given, it must be that one.

    Raises:
        StateError: The state is damaged, truncated, or of another plan.
    """
    state = unpack(data, TrialState)
    with instead_of(PlanError, StateError("the state is damaged: it does not hold a plan.")):
        made_under = Plan.loads(state.plan)
    if plan is not None and plan.fingerprint != made_under.fingerprint:
        raise StateError(
            f"the state was made under another plan ({made_under.name}), which differs in "
            f"{differing(plan, made_under)}; load it with that one."
        )
    if min([*state.dropped.values(), *(fault.records for fault in state.faults)], default=1) < 1:
        raise StateError("the state is damaged: its counts do not fit.")
    return state, made_under


def differing(plan: Plan, other: Plan) -> str:
    """The settings in which two plans differ."""
    ours, theirs = (msgspec.json.decode(each.canonical()) for each in (plan, other))
    names = [name for name in Plan.__struct_fields__ if ours.get(name) != theirs.get(name)]
    return ", ".join(f"`{name}`" for name in names) or "the order of its arms"
