"""Effects within the levels of the plan's segments, each level read like a trial of its own.

A level is read by the estimator and the kind of error that lead. A level that too few units of an arm have is withheld.
The levels that others are not told can be worked out together, from the whole and those that are; so more of them are
withheld, the smallest first, until together they are enough units.

Whether effects differ is tested over all levels that have an error; what others are told of it, over those levels alone
that they are told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from foldaway.effects.between_levels import levels_differ
from foldaway.effects.door import Door
from foldaway.effects.effect import Effect
from foldaway.effects.from_sums import SumsRead
from foldaway.effects.rows import row_from
from foldaway.effects.segment import BySegment, by_size
from foldaway.inference.adjusting import fit_starts
from foldaway.inference.intervals import corrected
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, best
from foldaway.tallies import Grouped
from foldaway.tallies.segment import SegmentTallies, units_of

_NO_UNITS = (
    "a total per unit takes the number of units that were assigned within each level, and the plan has none "
    "(`assigned_units` is that of the whole trial). By level, use a mean of this column."
)
_TOGETHER = "it is withheld together with smaller levels, which could otherwise be worked out from it and the whole."


def by_segment(plan: Plan, tallies: Grouped, door: Door) -> list[BySegment]:
    """For every segment, outcome and arm the effects by level, p-values corrected for there being several."""
    if not plan.segments or not tallies.n:
        return []
    if (cases := tallies.fitted) is not None:  # read as it would be once lean: levels are too small for fits
        start = fit_starts(cases)
        tallies = tallies.fixed(start.predictor, start.without, start.why)
    tallies = tallies.named()
    if door.others:  # what few have in common is not named to others
        tallies = tallies.pooled()
    found = [
        each
        for column, segment in zip(plan.segments, tallies.segments, strict=True)
        for outcome in plan.outcomes
        for each in _by_level(plan, column, segment, outcome, door)
    ]
    return list(_adjusted(plan, found, door))


def _by_level(
    plan: Plan, column: str, segment: SegmentTallies[Grouped], outcome: Outcome, door: Door
) -> Iterator[BySegment]:
    """One outcome's, for every arm."""
    levels = sorted(level for level in segment.levels if sum(segment.level(level).counts))
    readings = {level: SumsRead.of(segment.level(level)) for level in levels}
    rows = {
        level: _leading([row_from(plan, each) for each in door.found(reading.found_of(outcome))])
        for level, reading in readings.items()
    }
    why = _withheld(plan, outcome, {level: reading.present(outcome) for level, reading in readings.items()}, door)
    for arm in range(1, len(plan.arms)):
        own = {level: rows[level][arm - 1] for level in levels}
        effects = []
        for level, row in own.items():
            if level in why:
                row = row.without_numbers(why[level])
                if door.others:
                    row = msgspec.structs.replace(row, n=None, n_arm=None, n_control=None)
            effects.append(msgspec.structs.replace(row, segment=level))
        lead = next((row for row in effects if row.reliable), effects[0])
        hidden = why if door.others or outcome.KIND == "total" else {}
        compared = [readings[level] for level, row in own.items() if row.reliable and level not in hidden]
        test = levels_differ(compared, outcome, lead.estimator, lead.se_kind, arm) if len(compared) > 1 else None
        tested = test is not None and test.df > 0
        yield BySegment(
            column=column,
            outcome=lead.outcome,
            arm=lead.arm,
            control=lead.control,
            effects=by_size(effects),
            differ_df=int(test.df) if test is not None and tested else None,
            differ_p_value=float(test.p_value) if test is not None and tested else None,
        )


def _leading(rows: Sequence[Effect]) -> list[Effect]:
    """By arm, the row of the leading estimator with the leading kind of error."""
    names = [row.estimator for row in rows if row.estimate is not None] or [row.estimator for row in rows]
    name = best(ESTIMATORS, names)
    kind = best(ERRORS, [row.se_kind for row in rows if row.estimator == name])
    return [row for row in rows if (row.estimator, row.se_kind) == (name, kind)]


def _withheld(plan: Plan, outcome: Outcome, present: dict[str, Floats], door: Door) -> dict[str, str]:
    """Why some levels' effects on an outcome are not told, given the records that have it, by arm and group."""
    if outcome.KIND == "total":
        return dict.fromkeys(present, _NO_UNITS)
    least = plan.privacy.smallest_cell
    units = {level: min(units_of(plan, records)) for level, records in present.items()}
    why = {level: f"an arm has fewer than {least} units in it." for level, n in units.items() if n < least}
    if not door.others or not why:
        return why
    # By records: units are counted by group, and in large levels all groups have some.
    records = {level: float(np.sum(each)) for level, each in present.items()}
    for level in sorted(units.keys() - why, key=lambda each: (records[each], each)):
        if min(units_of(plan, np.sum([present[each] for each in why], axis=0))) >= least:
            break
        why[level] = _TOGETHER
    return why


def _adjusted(plan: Plan, found: Sequence[BySegment], door: Door) -> Iterator[BySegment]:
    """With p-values corrected over all levels, outcomes and arms; those of guardrails stay as they are.

    Whether effects differ between a segment's levels is a question of its own, corrected over outcomes and arms. What
    others are told of it is cut off afterwards, or the correction would multiply what was cut.
    """
    family = [row for each in found if not plan.outcome(each.outcome).guardrail for row in each.effects]
    told = [row for row in family if row.p_value is not None]
    values = zip(told, corrected([row.p_value for row in told], plan.correction), strict=True)
    adjusted = {id(row): value for row, value in values}
    for each in found:
        effects = [msgspec.structs.replace(row, p_adjusted=adjusted.get(id(row))) for row in each.effects]
        alike = [other for other in found if other.column == each.column and other.differ_p_value is not None]
        tests = corrected([other.differ_p_value for other in alike], plan.correction)
        own = next((p for other, p in zip(alike, tests, strict=True) if other is each), None)
        plain, own = door.p_value(each.differ_p_value), door.p_value(own)
        yield msgspec.structs.replace(each, effects=effects, differ_p_value=plain, differ_p_adjusted=own)
