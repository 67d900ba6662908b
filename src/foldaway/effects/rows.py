"""From what is found to the rows that people and machines read: effect, error, intervals, or why they are withheld."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from foldaway.effects.effect import Effect, defined, end, row_of
from foldaway.effects.found import Found
from foldaway.effects.reasons import CONSTANT, PLANNED, few_carry
from foldaway.effects.released import widening
from foldaway.inference.anytime import Anytime, anytime_effect
from foldaway.inference.blended import FEW_CARRIERS, FEW_CARRY
from foldaway.inference.claim import Claim
from foldaway.inference.intervals import critical
from foldaway.inference.levels import ArmEffect, Levels, difference_of, effect_of, share_effect_of
from foldaway.inference.margin import claim_at
from foldaway.inference.one_look import mean_at_one_look, quantile_at_one_look, share_at_one_look
from foldaway.inference.reading.compliers import complier_effect
from foldaway.inference.rounding import two_digits
from foldaway.plan import Plan
from foldaway.plan.vocabulary import ESTIMATORS


def row_from(plan: Plan, found: Found) -> Effect:
    """The row; numbers that do not exist are None in it."""
    claim = claim_at(plan, found.outcome, found.levels)
    point = _point(plan, found, claim)
    write = partial(row_of, plan, found.outcome, claim, found.arm, found.by, found.counts)
    if not point.reliable:
        return write(Anytime(why=point.why), point, **_released(plan, found, point))
    more: dict[str, Any] = {"note": found.note or _few_carry(found)} | _released(plan, found, point)
    if found.resampled is not None:
        point, beside = _with_replicates(plan, found, point, claim)
        more |= beside
    if plan.looks is not None:
        return write(Anytime(why=PLANNED), point, **more)
    return write(anytime_effect(found.watched, plan.confidence, plan.tightest_at, claim), point, **more)


def _few_carry(found: Found) -> str | None:
    """That few records carry a mean, or a ratio of two."""
    few = found.carried is not None and found.carried.evidence is not None and found.carried.evidence < FEW_CARRIERS
    return FEW_CARRY if few and found.outcome.level != "share" else None


def _point(plan: Plan, found: Found, claim: Claim) -> ArmEffect:
    levels = found.levels
    if levels is None:
        return ArmEffect(reliable=False, why=found.why)
    if found.no_error:
        apart, base = float(difference_of(levels, 1).estimate), float(levels.value[0])
        point = ArmEffect(defined(apart), defined(base), reliable=False, why=found.no_error)
    else:
        point = _compared(plan, found, levels, claim)
    if point.reliable and not (point.std_error and math.isfinite(point.std_error)):
        point = ArmEffect(point.estimate, point.control_level, reliable=False, why=CONSTANT, relative=point.relative)
    if not found.told:
        return point
    if not point.reliable or not math.isfinite(point.estimate or 0.0):  # without an error there are no steps
        same = point.why in ("", CONSTANT)  # whether all have the same value, or all but a few, is not told
        return ArmEffect(reliable=False, why=few_carry(plan) if same else point.why)
    return point._replace(first_stage=point.first_stage and float(two_digits(point.first_stage)))


def _compared(plan: Plan, found: Found, levels: Levels, claim: Claim) -> ArmEffect:
    """The comparison of two levels, by the rule for their kind."""
    if ESTIMATORS[found.by[0]].of_effects:
        return complier_effect(levels, 1, plan.confidence, claim)
    if levels.steps is not None:
        return quantile_at_one_look(levels, plan.confidence, claim, told=found.told)
    if found.carried is not None:
        one_look = share_at_one_look if found.outcome.level == "share" else mean_at_one_look
        return one_look(levels, found.carried, plan.confidence, claim)
    compared = share_effect_of if found.outcome.level == "share" else effect_of
    return compared(levels, 1, plan.confidence, claim)


def _with_replicates(plan: Plan, found: Found, point: ArmEffect, claim: Claim) -> tuple[ArmEffect, dict[str, Any]]:
    """The relative interval by the replicates' spread, and what else they say."""
    assert found.resampled is not None
    sample = found.resampled._asdict()
    more = {name: end(value) if "_ci_" in name else value for name, value in sample.items() if name in _BESIDE}
    if point.relative is None:
        return point, {name: value for name, value in more.items() if not name.startswith("relative")}
    away = critical(claim.coverage(plan.confidence), point.df or math.inf) * found.resampled.relative_std_error
    lower, upper = claim.opened(point.relative - away, point.relative + away, of=point.control_level or 1.0)
    point = point._replace(relative_ci_lower=end(lower), relative_ci_upper=end(upper))
    return point._replace(relative_std_error=found.resampled.relative_std_error), more


_BESIDE = (
    "percentile_ci_lower",
    "percentile_ci_upper",
    "percentile_p_value",
    "relative_percentile_ci_lower",
    "relative_percentile_ci_upper",
    "replicates",
    "replicates_left_out",
)


def _released(plan: Plan, found: Found, point: ArmEffect) -> dict[str, Any]:
    """What a row of a release says about it; nothing in any other row."""
    if plan.release is None:
        return {}
    said: dict[str, Any] = {"epsilon": plan.release.epsilon, "delta": plan.release.delta, "protects": plan.protects}
    if point.std_error and point.df:
        said["widening"] = widening(plan, found.noise / point.std_error**2, point.df)
    return said
