"""The effects of a trial, whatever it keeps: rows from what its tallies say, and the checks beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from foldaway.effects.by_segment import SiteTallies, by_segment, effects_by_site, side_by_side
from foldaway.effects.checks import Checks, assembled
from foldaway.effects.door import OWN, Door
from foldaway.effects.effect import Effect
from foldaway.effects.effects import Effects
from foldaway.effects.found import Found
from foldaway.effects.from_moments import MomentsRead
from foldaway.effects.from_sums import SumsRead
from foldaway.effects.headline import comparisons
from foldaway.effects.looks_taken import Look
from foldaway.effects.read_baseline import baseline_of
from foldaway.effects.read_curves import curves_of
from foldaway.effects.read_flow import flow_of, received_of
from foldaway.effects.released import release_notes
from foldaway.effects.rows import row_from
from foldaway.errors import Unreleased
from foldaway.inference.differing import JointTest, arms_differ
from foldaway.inference.sample_ratio import sample_ratio
from foldaway.plan import Plan
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS
from foldaway.records.faults import Faults
from foldaway.tallies import Grouped, Held, against, arms_of, grouped_of


def read_effects(
    plan: Plan,
    tallies: Held,
    dropped: Faults,
    door: Door = OWN,
    *,
    population: bool = True,
    control: str | None = None,
    looks: Sequence[Look] = (),
) -> Effects:
    """What tallies say: see `Trial.effects`, which also warns."""
    if control is not None:
        tallies = against(control, tallies)
        plan = tallies.plan
    sums = grouped_of(tallies) if plan.keeps_sums else None
    moments = MomentsRead(plan, arms_of(tallies), population)
    effects = effects_of(plan, dropped, door, sums=sums, moments=moments)
    return replace(effects, looks=[each.told() for each in looks] if door.others else looks)


def effects_of(
    plan: Plan,
    faults: Faults,
    door: Door = OWN,
    *,
    sums: Grouped | None = None,
    moments: MomentsRead | None = None,
    units: Mapping[str, int] | None = None,
    notes: Iterable[str] = (),
    sites: Mapping[str, SiteTallies] | None = None,
) -> Effects:
    """Every effect that sums and moments hold, and the checks.

    Args:
        plan: The plan.
        faults: Faulty records left out.
        door: To whom they are.
        sums: Sums by group, if there are some.
        moments: The moments of the arms, if there are some.
        units: How many units there are, by arm, where they are counted.
        notes: What else there is to say about the records.
        sites: What each site has sent, if effects are compared within sites.

    Raises:
        Unreleased: The plan has a `release`, and these are the exact tallies.
    """
    moments = moments if moments is not None and moments.arms else None
    reading = None if sums is None else _reading(plan, sums).within_sites(side_by_side(sites) if sites else None)
    if reading is not None and units is not None:
        reading = reading._replace(units=list(units.values()))
    door = OWN if sums is not None and sums.released else door  # noise hides more than rounding would
    found = [*([] if reading is None else reading.found()), *([] if moments is None else moments.found())]
    rows = [row_from(plan, each) for each in door.found(sorted(found, key=partial(_place, plan)))]
    if plan.release is not None:
        notes = [*notes, *release_notes(plan, rows)]
    holder = reading or moments
    assert holder is not None
    counts = dict(zip(plan.arms, holder.all_counts, strict=True))
    units = units or (None if moments is None else moments.units())
    if reading is not None and (units is None or plan.shares_differ):
        ratio = reading.ratio()
    else:
        ratio = sample_ratio(units or counts, plan.arms, "units" if units else "records")
    losses = [] if reading is None else list(reading.losses())
    outlying = [] if reading is None else list(reading.outlying())
    checks = door.checks(Checks.of(plan, counts, ratio, faults, losses)._replace(outlying=outlying), plan)
    pooled = [] if moments is None else moments.notes()
    left_out = next((said for each in (reading, moments) if each and (said := each.left_out_notes())), [])
    effects = assembled(plan, rows, checks, [*pooled, *notes, *door.own_notes(left_out)])
    if plan.flow is not None and plan.release is None:
        received = None if reading is None else received_of(plan, reading.plain, door)
        effects = replace(effects, flow=flow_of(plan, plan.flow, checks, received))
    if reading is None:
        return effects
    effects = replace(effects, baseline=baseline_of(plan, reading.tallies.baseline, door))
    effects = replace(effects, joint=_joint(effects, reading, door))
    if checks.excess:
        return effects
    by_site = effects_by_site(plan, sites, door) if sites else []
    parts = [*by_site, *by_segment(plan, reading.tallies, door, sites or {})]
    return replace(effects, curves=list(curves_of(reading, door)), segments=parts)


def _reading(plan: Plan, sums: Grouped) -> SumsRead:
    if plan.release is not None and not sums.released:
        raise Unreleased()
    return SumsRead.of(sums)


def _place(plan: Plan, found: Found) -> tuple[int, int, int, int]:
    """The order of rows: outcomes and arms as in the plan, estimators and kinds of error as in the vocabulary."""
    estimator, kind = found.by
    order = list(plan.outcomes).index(found.outcome), found.arm, list(ESTIMATORS).index(estimator)
    return *order, list(ERRORS).index(kind)


def _joint(effects: Effects, reading: SumsRead, door: Door) -> dict[str, JointTest]:
    """By outcome, whether any of several arms differs from the control, by the estimator and error that lead."""
    plan, tests = reading.plan, {}
    leads: dict[str, list[Effect]] = {}
    for each in comparisons(effects) if len(plan.arms) > 2 else ():
        leads.setdefault(each.outcome, []).append(each.lead)
    for outcome in plan.outcomes:
        lead = leads.get(outcome.name, [])
        if not lead or not all(row.reliable for row in lead):
            continue
        by = lead[0].estimator, lead[0].se_kind
        if by not in reading.pairs(outcome):  # the plan names one first that is read from moments
            continue
        levels = reading.exact(by, outcome, recentred=False)
        if door.others:  # from the same numbers as the rows: exact ones could be solved for
            kinds = {each: reading.levels(each, outcome) for each in reading.pairs(outcome) if each[0] == by[0]}
            known = {each: those for each, those in kinds.items() if not isinstance(those, str)}
            levels = door.levels(known, reading.carriers(outcome, by[0]))[by]
        if (test := arms_differ(levels)) is not None:
            tests[outcome.name] = test
    return tests
