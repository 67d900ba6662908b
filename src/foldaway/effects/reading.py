"""The effects of a trial, whatever it keeps: of the whole, and within the levels of the plan's segments.

Each level is read like a trial of its own, by the estimator and the kind of error that lead. A level that too few
units of an arm have is withheld. The levels that others are not told can be worked out together, from the whole and
those that are; so more of them are withheld, the smallest first, until together they are enough units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec
import numpy as np

from foldaway.effects.analysis import effects_of
from foldaway.effects.effect import Effect
from foldaway.effects.effects import Effects
from foldaway.effects.group_analysis import Reading, effects_of_groups, rows_of
from foldaway.effects.segment import BySegment
from foldaway.errors import EstimateError
from foldaway.inference.adjusting import fit_starts
from foldaway.inference.differing import levels_differ
from foldaway.inference.intervals import corrected
from foldaway.inference.rounding import coarse_p_value
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, best
from foldaway.records.faults import Faults, excess
from foldaway.tallies import Arms, Holding, against
from foldaway.tallies.grouped import Grouped, Segment, units_of

_TOGETHER = "it is withheld together with smaller levels, which could otherwise be worked out from it and the whole."


def read_effects(
    plan: Plan,
    tallies: Holding,
    dropped: Faults,
    *,
    population: bool = True,
    rounded: bool = False,
    control: str | None = None,
) -> Effects:
    """What tallies say, of moments or of sums: see `Trial.effects`, which also warns."""
    if control is not None:
        plan, tallies = against(control, plan, tallies)
    if isinstance(tallies, Arms):
        return effects_of(plan, tallies.arms, dropped, population=population, rounded=rounded)
    effects = effects_of_groups(plan, tallies, dropped, rounded=rounded)
    if excess(dropped, tallies.n, plan.drop_limit):
        return effects
    return replace(effects, segments=_by_segment(plan, tallies, rounded=rounded))


def _by_segment(plan: Plan, tallies: Grouped, *, rounded: bool) -> list[BySegment]:
    """For every segment, outcome and arm the effects by level, p-values corrected for there being several."""
    if not plan.segments or not tallies.n:
        return []
    if tallies.moments is not None:  # read as it would be once lean: levels have too few records to be fitted each
        start = fit_starts(tallies.moments)
        tallies = tallies.fixed(start.predictor, start.without, start.why)
    if rounded:  # what few have in common is not named to others
        tallies = tallies.pooled(plan.privacy.smallest_cell)
    found = [
        each
        for column, segment in zip(plan.segments, tallies.segments, strict=True)
        for outcome in plan.outcomes
        for each in _by_level(plan, column, segment, outcome, rounded)
    ]
    return list(_adjusted(plan, found, rounded))


def _by_level(plan: Plan, column: str, segment: Segment, outcome: Outcome, rounded: bool) -> Iterator[BySegment]:
    """One outcome's, for every arm."""
    levels = sorted(level for level in segment.levels if sum(segment.level(level).counts))
    readings = {level: Reading.of(segment.level(level), rounded) for level in levels}
    rows = {level: _leading(rows_of(reading, outcome)) for level, reading in readings.items()}
    why = _withheld(plan, {level: reading.present(outcome) for level, reading in readings.items()}, rounded)
    whole = Reading.of(segment.cells, rounded)
    for arm in range(1, len(plan.arms)):
        effects = []
        for level in levels:
            row = rows[level][arm - 1]
            if level in why:
                row = row.without_numbers(why[level])
                if rounded:
                    row = msgspec.structs.replace(row, n=None, n_arm=None, n_control=None)
            effects.append(msgspec.structs.replace(row, segment=level))
        told = [row for row in effects if row.reliable]
        lead, test = (told or effects)[0], None
        if len(told) > 1:
            places = [segment.levels.index(row.segment or "") for row in told]
            with suppress(EstimateError):  # a level of which nothing can be told, such as a ratio to nothing
                joint = whole.levels(lead.estimator, lead.se_kind, outcome, recentred=False)
                test = levels_differ(joint, len(plan.arms), arm, places)
        yield BySegment(
            column=column,
            outcome=lead.outcome,
            arm=lead.arm,
            control=lead.control,
            effects=effects,
            differ_df=None if test is None else test.df,
            differ_p_value=None if test is None else test.p_value,
        )


def _leading(rows: Sequence[Effect]) -> list[Effect]:
    """By arm, the row of the leading estimator with the leading kind of error."""
    names = [row.estimator for row in rows if row.estimate is not None] or [row.estimator for row in rows]
    name = best(ESTIMATORS, names)
    kind = best(ERRORS, [row.se_kind for row in rows if row.estimator == name])
    return [row for row in rows if (row.estimator, row.se_kind) == (name, kind)]


def _withheld(plan: Plan, present: dict[str, Floats], rounded: bool) -> dict[str, str]:
    """Why some levels' effects on an outcome are not told, given the records that have it, by arm and group."""
    least = plan.privacy.smallest_cell
    units = {level: min(units_of(plan, records)) for level, records in present.items()}
    why = {level: f"an arm has fewer than {least} units in it." for level, n in units.items() if n < least}
    if not rounded or not why:
        return why
    for level in sorted(units.keys() - why, key=lambda each: (units[each], each)):
        if min(units_of(plan, np.sum([present[each] for each in why], axis=0))) >= least:
            break
        why[level] = _TOGETHER
    return why


def _adjusted(plan: Plan, found: Sequence[BySegment], rounded: bool) -> Iterator[BySegment]:
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
        plain, own = map(coarse_p_value, (each.differ_p_value, own)) if rounded else (each.differ_p_value, own)
        yield msgspec.structs.replace(each, effects=effects, differ_p_value=plain, differ_p_adjusted=own)
