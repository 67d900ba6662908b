"""Effects within the levels of the plan's segments, each level read like a trial of its own.

A level is read by the estimator and the kind of error that lead. A level that too few units of an arm have is withheld.
The levels that others are not told can be worked out together, from the whole and those that are; so more of them are
withheld, the smallest first, until together they are enough units.

Whether effects differ is tested over all levels that have an error; what others are told of it, over those levels alone
that they are told of. Of means and shares the variances are those of `inference/alexander_govern.py`, blended as in
`inference/blended.py`. If they are adjusted, all levels have one λ: of a level's few records it would be chosen badly.
Other kinds of outcome, and effects within strata, are compared by each level's own effect and error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.effects.door import Door
from foldaway.effects.effect import Effect
from foldaway.effects.from_sums import SumsRead
from foldaway.effects.rows import row_from
from foldaway.effects.segment import SITE, BySegment, by_size
from foldaway.errors import EstimateError
from foldaway.inference.adjusting import fit_starts
from foldaway.inference.alexander_govern import Differing, differing, effects_differ, means_by_level
from foldaway.inference.anytime import evidence_of
from foldaway.inference.blocked_groups import spread_within
from foldaway.inference.intervals import corrected
from foldaway.inference.jackknife import cells_of
from foldaway.inference.levels import difference_of, over
from foldaway.inference.random_effects import random_effects
from foldaway.inference.reading.compliers import complier_effect
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import Spread, spread_of, welch
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, JACKKNIFE, best
from foldaway.tallies import Grouped
from foldaway.tallies.segment import SegmentTallies, side_by_side_of, units_of

_NO_UNITS = (
    "a total per unit takes the number of units that were assigned within each segment, and the plan has none "
    "(`assigned_units` is that of the whole trial). By level, use a mean of this column."
)
_TOGETHER = "it is withheld together with smaller levels, which could otherwise be worked out from it and the whole."


class SiteTallies(NamedTuple):
    """What a site has sent, and how many units it has, by arm."""

    tallies: Grouped
    units: Sequence[int]


def by_segment(plan: Plan, tallies: Grouped, door: Door, sites: Mapping[str, SiteTallies]) -> list[BySegment]:
    """For every segment, outcome and arm the effects by level, p-values corrected for there being several.

    Args:
        plan: The plan.
        tallies: What the trial holds.
        door: To whom they are told.
        sites: What each site has sent, if effects are compared within sites.
    """
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
        for place, (column, segment) in enumerate(zip(plan.segments, tallies.segments, strict=True))
        for outcome in plan.outcomes
        if plan.federated is None or outcome.binning is None  # sites send no histograms by level
        for each in _by_level(plan, column, segment, outcome, door, partial(_reading, segment, place, sites))
    ]
    return list(_adjusted(plan, found, door))


def effects_by_site(plan: Plan, sites: Mapping[str, SiteTallies], door: Door) -> Iterator[BySegment]:
    """For every outcome and arm the effects by site, read as the levels of a segment are, and the mean over sites.

    The mean comes from the numbers that are told of sites, so it says no more than they do.
    """
    segment = side_by_side(sites)

    def reading(site: str) -> SumsRead:
        own = SumsRead.of(segment.level(site))
        return own._replace(of_group=plan.privacy.smallest_cell, units=sites[site].units)

    found = [each for outcome in plan.outcomes for each in _by_level(plan, SITE, segment, outcome, door, reading)]
    for each in _adjusted(plan, found, door):
        known = [(row.estimate, row.std_error) for row in each.effects if row.reliable and row.std_error]
        y, error = np.array(known, dtype=np.float64).reshape(-1, 2).T
        random = random_effects(y, error**2, plan.confidence) if len(known) > 1 else None
        yield msgspec.structs.replace(each, random=random)


def side_by_side(sites: Mapping[str, SiteTallies]) -> SegmentTallies[Grouped]:
    """The sites as the levels of a segment."""
    return side_by_side_of({site: sent.tallies for site, sent in sites.items()})


def _reading(segment: SegmentTallies[Grouped], place: int, sites: Mapping[str, SiteTallies], level: str) -> SumsRead:
    """A level, whose arms are compared within the sites that have sent it, if there are sites."""
    parts = {site: sent.tallies.segments[place].level(level) for site, sent in sites.items()}
    there = {site: part for site, part in parts.items() if part.n}
    return SumsRead.of(segment.level(level)).within_sites(side_by_side_of(there) if there else None)


def _by_level(
    plan: Plan,
    column: str,
    segment: SegmentTallies[Grouped],
    outcome: Outcome,
    door: Door,
    reading_of: Callable[[str], SumsRead],
) -> Iterator[BySegment]:
    """One outcome's, for every arm."""
    of_group = plan.privacy.smallest_cell if column is SITE else None
    levels = sorted(level for level in segment.levels if sum(segment.level(level).counts))
    readings = {level: reading_of(level) for level in levels}
    rows = {
        level: _leading([row_from(plan, each) for each in door.found(reading.found_of(outcome))])
        for level, reading in readings.items()
    }
    why = _withheld(
        plan, outcome, {level: reading.present(outcome) for level, reading in readings.items()}, door, of_group
    )
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
        test = _differ(compared, outcome, lead.estimator, lead.se_kind, arm) if len(compared) > 1 else None
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


def _differ(levels: Sequence[SumsRead], outcome: Outcome, estimator: str, kind: str, arm: int) -> Differing:
    """Whether an arm's effects differ between these levels, each read by the estimator and kind of error that lead."""
    of_effects, first_order = ESTIMATORS[estimator].of_effects, any(each.first_order for each in levels)
    within = any(each.strata is not None for each in levels)
    if outcome.KIND not in ("mean", "share") or of_effects or first_order or within:
        return differing(*np.array([_effect(each, outcome, estimator, kind, arm) for each in levels]).T)
    (place,), pair = levels[0].plan.places(outcome), np.array([0, arm])
    sums = [each.plain for each in levels]
    spread = _stacked([spread_of(each, place) for each in sums], pair)
    rate = float(contrast_rate(spread_within(spread)).beta) if ESTIMATORS[estimator].adjusts else 0.0
    if kind == JACKKNIFE:
        cells = [cells_of(each, place) for each in sums]
        weight = np.stack([each.weight[:, pair] for each in cells])
        value = np.stack([each.value[:, pair] for each in cells])
        if rate:
            adjusted = np.stack([each.adjusted[:, pair] for each in cells if each.adjusted is not None])
            value = value - rate * (value - adjusted)
        means = means_by_level(weight, value)
    else:
        means = welch(_blend(spread, rate))
    carriers = np.array([float(evidence_of(each, place, pair)) for each in sums])
    size = np.stack([over(each.absolute[pair, place], each.weights(place)[pair].sum(axis=1)) for each in sums])
    return effects_differ(means, 1, carriers=carriers, size=size)


def _effect(level: SumsRead, outcome: Outcome, estimator: str, kind: str, arm: int) -> tuple[float, float, float]:
    """A level's effect, its variance and how well this is known."""
    try:
        found = level.exact((estimator, kind), outcome, recentred=False)
    except EstimateError:  # by the estimator that leads elsewhere, such as a ratio to nothing
        return np.nan, np.nan, np.nan
    if not ESTIMATORS[estimator].of_effects:
        estimate, variance, df = (float(each) for each in difference_of(found, arm))
        return estimate, variance, df
    effect = complier_effect(found, arm, level.plan.confidence)
    estimate, error, df = (np.nan if each is None else each for each in (effect.estimate, effect.std_error, effect.df))
    return estimate, error**2, df


def _stacked(spreads: Sequence[Spread], pair: NDArray[np.intp]) -> Spread:
    """Of these arms, levels on the first axis."""
    n, weight, mean, products = (
        np.stack([np.asarray(getattr(each, name))[pair] for each in spreads]) for name in Spread._fields[:4]
    )
    worth = [each.effective if each.effective is not None else each.n for each in spreads]
    return Spread(n, weight, mean, products, spreads[0].level, np.stack([each[pair] for each in worth]))


def _blend(spread: Spread, rate: float) -> Spread:
    """That of y − λ(y − ỹ), as of an outcome that is not adjusted."""
    parts = np.array([1 - rate, rate])[: spread.mean.shape[-1]]
    products = np.einsum("i,...ij,j->...", parts, spread.products, parts)
    return spread._replace(mean=(spread.mean @ parts)[..., None], products=products[..., None, None], level=np.zeros(1))


def _withheld(
    plan: Plan, outcome: Outcome, present: dict[str, Floats], door: Door, of_group: int | None
) -> dict[str, str]:
    """Why some levels' effects on an outcome are not told, given the records that have it, by arm and group."""
    if outcome.KIND == "total":
        return dict.fromkeys(present, _NO_UNITS)
    least = plan.privacy.smallest_cell
    units = {level: min(units_of(plan, records, of_group)) for level, records in present.items()}
    why = {level: f"an arm has fewer than {least} units in it." for level, n in units.items() if n < least}
    if not door.others or not why:
        return why
    # By records: units are counted by group, and in large levels all groups have some.
    records = {level: float(np.sum(each)) for level, each in present.items()}
    for level in sorted(units.keys() - why, key=lambda each: (records[each], each)):
        if min(units_of(plan, np.sum([present[each] for each in why], axis=0), of_group)) >= least:
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
