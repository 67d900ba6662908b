"""What is told of a comparison at a single look, from levels and how few records carry them.

Few carriers, or a small arm, show too little of their own spread: shares are compared by the rule of `one_look_share`,
other means by that of `blended`. A quantile of values in steps has no standard error: its interval inverts the
distribution function, as `stepped` has it.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from foldaway.inference.blended import FEW_CARRIERS, blended_difference
from foldaway.inference.claim import Claim
from foldaway.inference.levels import UNBOUNDED, ArmEffect, Levels, effect_of, relative_of
from foldaway.inference.one_look_share import shares_of
from foldaway.inference.rounding import coarse_p_value, to_steps
from foldaway.numerics.block import Floats

FEW = (
    f"fewer than about {FEW_CARRIERS:.0f} records of the smaller arm carry this outcome, too few for an interval of "
    "the relative effect."
)
NO_CONTROL = "the control's share is zero, so there is no ratio to give."
NONE_EXPECTED = "the smaller arm is too small to expect a single record that carries this outcome."


class Carried(NamedTuple):
    """What is known of the records behind two levels, the control's first.

    Attributes:
        apart: The levels with the covariance of their difference alone: without noise that both share.
        evidence: How many records of the smaller arm carry the outcome; None where only sums of units are known.
        size: The arms' means of |v|.
        worth: As many records of equal weight as each arm's are worth.
        plain: Of adjusted levels, whose records are worth more than they are, those of the outcome as it was measured.
    """

    apart: Levels
    evidence: float | None
    size: Floats
    worth: Floats
    plain: Levels | None = None


def share_at_one_look(levels: Levels, carried: Carried, confidence: float, claim: Claim) -> ArmEffect:
    """A difference of shares, their ratio and the ratio of their odds.

    Example:
        >>> import numpy as np
        >>> n, p = np.array([9_900.0, 100.0]), np.array([200 / 9_900, 0.0])
        >>> levels = Levels(p, np.diag(p * (1 - p) / (n - 1)), np.diag(1 / (n - 1)), n)
        >>> effect = share_at_one_look(levels, Carried(levels, 2.0, p, n), 0.95, Claim())
        >>> effect.p_value > 0.2, [round(end, 3) for end in (effect.ci_lower, effect.ci_upper)]
        (True, [-0.03, 0.009])
    """
    found = effect_of(levels, 1, confidence, claim)
    if not (found.reliable and found.std_error):
        return found
    apart = carried.apart._replace(value=levels.value)
    shares = shares_of(apart, 1, records=carried.worth, least=1.0 if carried.plain is None else 0.0)
    estimate, variance, df = (float(x) for x in shares.difference())
    found = _tested(found, estimate, math.sqrt(variance), df, confidence, claim)
    control, arm = levels.value.tolist()
    if carried.evidence is not None and carried.evidence < 1:
        return _without_ratio(found, NONE_EXPECTED)._replace(odds_ratio_why=NONE_EXPECTED)
    if control <= 0:
        return _without_ratio(found, NO_CONTROL)._replace(odds_ratio_why=NO_CONTROL)
    lower, upper = (float(end) for end in shares.ratio(claim.coverage(confidence)))
    lower, upper = claim.opened(lower, upper)
    relative_error = float(relative_of(levels, 1, confidence).std_error)
    found = found._replace(
        relative=arm / control - 1,
        relative_std_error=relative_error,
        relative_ci_lower=lower - 1,
        relative_ci_upper=upper - 1,
        relative_why="",
    )
    if max(arm, control) >= 1:
        return found._replace(odds_ratio_why="an arm's share is one, so there are no odds to give.")
    lower, upper = claim.opened(*(float(end) for end in shares.ratio(claim.coverage(confidence), odds=True)))
    odds = arm * (1 - control) / (control * (1 - arm))
    return found._replace(odds_ratio=odds, odds_ratio_ci_lower=max(lower, 0.0), odds_ratio_ci_upper=upper)


def mean_at_one_look(levels: Levels, carried: Carried, confidence: float, claim: Claim) -> ArmEffect:
    """A difference of means, and as a share of the control's where enough records carry the outcome."""
    found = effect_of(levels, 1, confidence, claim)
    if not (found.reliable and found.std_error) or carried.evidence is None:
        return found
    own = found.std_error**2
    apart = blended_difference(carried.apart, 1, carried.evidence, carried.size, plain=carried.plain)
    variance, df = float(apart.variance), float(apart.df)
    found = _tested(found, found.estimate or 0.0, math.sqrt(variance), df, confidence, claim)
    if carried.evidence < FEW_CARRIERS:
        return _without_ratio(found, FEW)
    stretched = levels._replace(covariance=levels.covariance * max(variance / own, 1.0))
    relative = relative_of(stretched, 1, claim.coverage(confidence))
    if not relative.bounded:
        return found._replace(relative_why=UNBOUNDED)
    lower, upper = claim.opened(float(relative.lower), float(relative.upper), of=float(levels.value[0]))
    return found._replace(
        relative_std_error=float(relative.std_error), relative_ci_lower=lower, relative_ci_upper=upper
    )


def quantile_at_one_look(levels: Levels, confidence: float, claim: Claim, *, told: bool = False) -> ArmEffect:
    """A difference of quantiles and their ratio, whose intervals invert each arm's distribution function.

    Args:
        levels: The levels, with what their distribution functions say.
        confidence: Of the intervals.
        claim: What is tested.
        told: Whether others are told: ends are then in steps of the error.
    """
    from scipy.special import ndtri

    found, steps = effect_of(levels, 1, confidence, claim), levels.steps
    if not found.reliable or steps is None or not found.std_error:
        return found
    z = float(ndtri(0.5 + claim.coverage(confidence) / 2))
    exact = float(steps.value[1] - steps.value[0])
    lower, upper = (float(end) for end in steps.difference(1, z))
    statistic, p_value, against = claim.by_student(cache(lambda t: float(steps.score(1, t))), math.inf)
    width = found.std_error / 4
    if told:  # about the level that is told, as far as from the exact one
        shift = (found.estimate or 0.0) - exact
        lower, upper = (float(to_steps(end + shift, width)) for end in (lower, upper))
        p_value, against = coarse_p_value(p_value) or 0.0, None if against is None else coarse_p_value(against)
        statistic = float(to_steps(statistic, 0.25))
    lower, upper = claim.opened(lower, upper)
    found = found._replace(ci_lower=lower, ci_upper=upper, statistic=statistic, p_value=p_value, p_against=against)
    found = found._replace(df=math.inf)
    base = float(levels.value[0])
    if found.relative is None or told:
        return found
    below, above = (float(end) for end in steps.ratio(1, z))
    if not (base > 0 and math.isfinite(below) and math.isfinite(above)):
        return _without_ratio(found, UNBOUNDED)
    below, above = claim.opened(below - 1, above - 1)
    return found._replace(relative_ci_lower=below, relative_ci_upper=above)


def _tested(found: ArmEffect, estimate: float, error: float, df: float, confidence: float, claim: Claim) -> ArmEffect:
    """The same effect, tested by another number than the one that is shown."""
    lower, upper, statistic, p_value, against = claim.tested(estimate, error, df, confidence)
    found = found._replace(std_error=error, df=df, ci_lower=lower, ci_upper=upper)
    return found._replace(statistic=statistic, p_value=p_value, p_against=against)


def _without_ratio(found: ArmEffect, why: str) -> ArmEffect:
    none = found._replace(relative=None, relative_std_error=None, relative_ci_lower=None, relative_ci_upper=None)
    return none._replace(relative_why=why)
