"""Curves of survival outcomes as they are read from histograms of exits, and as others are told them.

A curve is its histogram. So others are told it only at times between which `smallest_cell` units of every arm have
left, in steps of a quarter of its error; and nothing of it where fewer of an arm had the event, or did not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from foldaway.effects.curves import Curve, Curves, Hazards
from foldaway.effects.door import Door
from foldaway.effects.effect import sentence
from foldaway.effects.from_sums import SumsRead
from foldaway.inference.intervals import critical
from foldaway.inference.jackknife import group_doubt
from foldaway.inference.levels import LEAST_GROUPS, over
from foldaway.inference.reading.survival import squares_of
from foldaway.inference.rounding import INFLATION, STEPS, coarse_p_value, round_count, to_steps, two_digits
from foldaway.inference.survival import (
    Exited,
    HazardContrast,
    contrast_by_group,
    contrast_of_records,
    curve,
    curve_error,
    log_log_band,
)
from foldaway.numerics.block import Floats
from foldaway.plan import Plan, Survival
from foldaway.tallies.segment import units_of

_FEW_GROUPS = f"an arm has units in fewer than {LEAST_GROUPS} of the groups that the error is computed from."
_NO_EVENTS = "an arm has too few events for a hazard ratio."


def curves_of(reading: SumsRead, door: Door) -> Iterator[Curves]:
    """Those of every survival outcome; outcomes of one histogram share them."""
    seen = set()
    for outcome in reading.plan.outcomes:
        if isinstance(outcome, Survival) and outcome.binning not in seen:
            seen.add(outcome.binning)
            yield _read(reading, outcome, door)


def _read(reading: SumsRead, outcome: Survival, door: Door) -> Curves:
    plan, histogram = reading.plan, reading.histogram(outcome)
    assert histogram is not None
    exits, squares = Exited.of(histogram.counts), squares_of(histogram)
    arms = range(1, len(plan.arms))
    if not histogram.counts.any(axis=(1, 2)).all():
        return Curves(outcome=outcome.name, why="An arm has no records yet.")
    if door.others and (why := next(filter(None, (reading.few(outcome, arm) for arm in arms)), "")):
        return Curves(outcome=outcome.name, why=sentence(why))
    whole = exits.total()
    survival, error, reach = curve(whole), *_error(plan, exits, squares)
    people = np.nan_to_num(over(reading.present(outcome).sum(axis=1), whole.every.sum(axis=-1)))
    places = _told_places(plan, exits, people) if door.others else _steps(whole)
    shown, spread, at_risk = survival[:, places], error[:, places], _later(whole)[:, places] * people[:, None]
    if door.others:
        spread = two_digits(spread * INFLATION)
        steps = np.where(spread > 0, to_steps(shown, shown * spread / STEPS), shown)
        at_risk = np.where(at_risk < plan.privacy.smallest_cell, 0, at_risk)
        shown = np.minimum.accumulate(np.clip(steps, 0, 1), axis=-1)
    lower, upper = log_log_band(shown, spread, reach[:, None])
    known = np.isfinite(reach)[:, None] & (shown > 0) & (shown < 1) & (spread > 0)
    count = round_count if door.others else round
    events = (whole.events.sum(axis=-1) * people).tolist()
    return Curves(
        outcome=outcome.name,
        times=outcome.binning.ends[places].tolist(),
        curves=[
            Curve(
                arm=arm,
                survival=shown[at].tolist(),
                lower=_where(known[at], lower[at]),
                upper=_where(known[at], upper[at]),
                at_risk=[int(count(n)) for n in at_risk[at].tolist()],
                events=int(count(events[at])),
            )
            for at, arm in enumerate(plan.arms)
        ],
        hazards=list(_hazards(reading, outcome, door)),
    )


def _where(known: Floats, ends: Floats) -> list[float | None]:
    return [end if there else None for there, end in zip(known.tolist(), ends.tolist(), strict=True)]


def _error(plan: Plan, exits: Exited, squares: Exited | None) -> tuple[Floats, Floats]:
    """By arm, the error of log S at each time; and how many of them a band reaches, NaN where there is none."""
    survival = curve(exits.total())
    if not plan.grouped:
        reach = np.full(len(survival), critical(plan.confidence, math.inf))
        return np.sqrt(curve_error(exits.total(), survival, squares)), reach
    without = curve(exits.left_out())
    groups = without.shape[-2]
    spread = (groups - 1) / groups * ((without - without.mean(axis=-2, keepdims=True)) ** 2).sum(axis=-2)
    df = np.diagonal(over(1.0, group_doubt(exits.events.sum(axis=-1).T)))
    enough = (exits.every.sum(axis=-1) > 0).sum(axis=-1) >= LEAST_GROUPS
    known = zip(enough, df, strict=True)
    ends = [critical(plan.confidence, f) if there and f >= 1 else math.nan for there, f in known]
    return np.nan_to_num(over(np.sqrt(spread), survival)), np.array(ends)


def _later(whole: Exited) -> Floats:
    """How many are followed beyond each time; of the last, those who were followed up to it."""
    later: Floats = whole.at_risk - whole.every
    later[..., -1] = whole.others[..., -1]
    return later


def _steps(whole: Exited) -> list[int]:
    """Where anybody leaves, and the ends."""
    there = whole.every.sum(axis=0) > 0
    there[[0, -1]] = True
    return [int(place) for place in np.flatnonzero(there)]


def _told_places(plan: Plan, exits: Exited, people: Floats) -> list[int]:
    """The times between which enough units of every arm have left, as those after the last one will have.

    Both depend on how many left, and not on how.
    """
    every, least = exits.every, plan.privacy.smallest_cell
    places, start = [0] if not every[..., 0].any() else [], 0

    def enough(first: int, stop: int) -> bool:
        return min(units_of(plan, every[..., first:stop].sum(axis=-1) * people[:, None])) >= least

    for place in range(every.shape[-1]):
        if enough(start, place + 1):
            places, start = [*places, place], place + 1
    if len(places) > 1 and start < every.shape[-1] and not enough(start, every.shape[-1]):
        places.pop()
    return places


def _hazards(reading: SumsRead, outcome: Survival, door: Door) -> Iterator[Hazards]:
    """The test and the ratio of each arm, by those who are at risk in the same stratum."""
    plan = reading.plan
    histogram, strata = reading.exits_by_stratum(outcome)
    exits, squares = Exited.of(histogram.counts).by_stratum(strata), squares_of(histogram)
    weights = None if squares is None else squares.by_stratum(strata)
    for code, arm in enumerate(plan.arms):
        if code:
            said = Hazards(arm=arm, control=plan.control, within_strata=strata > 1)
            yield _hazard(plan, said, exits.pair(code), None if weights is None else weights.pair(code), door)


def _hazard(plan: Plan, said: Hazards, pair: Exited, squares: Exited | None, door: Door) -> Hazards:
    if not plan.grouped:
        found = contrast_of_records(pair.total(), squares)
    elif (pair.every.sum(axis=(0, -1)) > 0).sum(axis=-1).min() < LEAST_GROUPS:
        return msgspec.structs.replace(said, why=sentence(_FEW_GROUPS))
    else:
        found = contrast_by_group(pair)
    p = found.p_value
    told = coarse_p_value(p) if door.others else p
    said = msgspec.structs.replace(said, p_value=None if told is None or math.isnan(p) else told)
    ratio = _ratio(plan, found, door)
    if ratio is None:
        return msgspec.structs.replace(said, why=sentence(_NO_EVENTS))
    middle, lower, upper = np.exp(ratio).tolist()
    return msgspec.structs.replace(said, hazard_ratio=middle, ci_lower=lower, ci_upper=upper)


def _ratio(plan: Plan, found: HazardContrast, door: Door) -> tuple[float, float, float] | None:
    """The logarithm of the hazard ratio, and where its interval begins and ends."""
    log, error, df = float(found.log_ratio), math.sqrt(float(found.log_variance)), float(found.df)
    if not (math.isfinite(log) and math.isfinite(error) and error > 0 and df >= 1):
        return None
    if door.others:
        error = float(two_digits(error * INFLATION))
        log = float(to_steps(log, error / STEPS))
    away = critical(plan.confidence, df) * error
    return log, log - away, log + away
