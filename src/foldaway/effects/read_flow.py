"""The flow diagram read from a trial's counters, exact or rounded as these are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from foldaway.effects.checks import Checks
from foldaway.effects.door import Door
from foldaway.effects.effects import Effects
from foldaway.effects.flow import FlowArm, FlowDiagram
from foldaway.errors import EstimateError
from foldaway.inference.rounding import round_count
from foldaway.plan import Flow, Plan
from foldaway.plan.vocabulary import COMPLIERS
from foldaway.records.faults import CLIPPED, NO_ARM, Faults
from foldaway.tallies.sums import Sums


def flow_of(
    plan: Plan,
    flow: Flow,
    checks: Checks,
    received: Mapping[str, int] | None = None,
) -> FlowDiagram:
    """The diagram.

    Args:
        plan: The plan.
        flow: What happened before there were records.
        checks: The counters, as they go through the door.
        received: By arm, who received what they were allocated to, if that is known.
    """
    missing = {loss.outcome: loss.lost for loss in checks.losses if loss.outcome is not None}
    reasons: dict[str, dict[str, int]] = {}
    for fault in checks.faults:
        if fault.rule != CLIPPED:
            reasons.setdefault(fault.arm, {})[f"{fault.column}: {fault.rule}"] = fault.records
    arms = []
    for arm, n in checks.counts.items():
        without = {each.name: missing[each.name][arm] for each in plan.outcomes if each.name in missing}
        arms.append(
            FlowArm(
                arm=arm,
                randomised=n + checks.faults.records[arm],
                received=None if received is None else received.get(arm),
                lost=reasons.get(arm, {}),
                analysed={each.name: max(n - without.get(each.name, 0), 0) for each in plan.outcomes},
                without=without,
            )
        )
    counted = checks.ratio.counted == "units" and checks.ratio.observed == checks.counts
    return FlowDiagram(
        counted="units" if plan.one_each or counted else "records",
        assessed=flow.assessed,
        excluded=dict(flow.excluded),
        unknown=checks.faults.records[NO_ARM],
        arms=arms,
        exact=not checks.rounded,
    )


def with_flow(effects: Effects, flow: Flow) -> Effects:
    """The effects with this in the diagram, which is drawn from their own counters if the plan did not ask for it."""
    if effects.flow is not None:
        said = {"assessed": flow.assessed, "excluded": dict(flow.excluded)}
        return replace(effects, flow=msgspec.structs.replace(effects.flow, **said))
    if effects.plan.release is not None:
        raise EstimateError("a `release` tells no count but its own, so there is no flow diagram: leave out the flow.")
    faults = Faults(effects.dropped.items(), effects.faults)
    checks = Checks(effects.counts, effects.sample_ratio, faults, effects.losses, rounded=effects.rounded)
    return replace(effects, flow=flow_of(effects.plan, flow, checks))


def at_the_end(told: Effects, exact: Effects) -> Effects:
    """What others are told once a trial has ended: the diagram's counts are exact then, and no later answer follows.

    Who received a treatment is a value of the records: where fewer than `smallest_cell` of an arm did, or did not, that
    stays untold.
    """
    if told.flow is None or exact.flow is None:
        return told
    arms = [
        own if shown.received is not None else msgspec.structs.replace(own, received=None)
        for own, shown in zip(exact.flow.arms, told.flow.arms, strict=True)
    ]
    return replace(told, flow=msgspec.structs.replace(exact.flow, arms=arms))


def received_of(plan: Plan, sums: Sums, door: Door) -> dict[str, int] | None:
    """By arm, how many received the treatment, where the plan's `received` is 1 or 0; for others none of a few."""
    compared = [] if plan.received is None else [each for each in plan.outcomes if COMPLIERS in each.READ_BY]
    if not compared:
        return None
    place = min(map(plan.receipt, compared), key=lambda each: -sums.counts(each).sum())
    n, total = sums.counts(place).sum(axis=1), sums.totals(place).sum(axis=1)
    squares = sums.square[:, place] + np.divide(total**2, n, out=np.zeros(len(n)), where=n > 0)
    if sums.shape.weighted or np.any(np.abs(squares - total) > _BINARY * np.maximum(n, 1)):
        return None
    counts, least = np.round(total).astype(int).tolist(), plan.privacy.smallest_cell
    if not door.others:
        return dict(zip(plan.arms, counts, strict=True))
    told = zip(plan.arms, counts, n.astype(int).tolist(), strict=True)
    return {arm: round_count(count) for arm, count, all_ in told if min(count, all_ - count) >= least}


# Squares that are the sums themselves, up to rounding, are of zeros and ones.
_BINARY = 1e-9
