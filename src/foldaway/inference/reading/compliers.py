"""The compliers' effect: of an outcome's effect and the effect on what was received, the ratio.

Of those assigned to an arm not all take it up. If being assigned changes an outcome only through what is received, and
makes nobody receive less, the ratio is the mean effect on those who receive more because they were assigned (Imbens
and Angrist 1994). Both effects come from the records that have the outcome, and their covariance from the same groups.
The interval is Fieller's set, all ρ that a test of Δy − ρ Δd does not reject (Anderson and Rubin 1949): it stays honest
where Δd is small, and is then unbounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.adjusting import too_few
from foldaway.inference.blocked_groups import blocked_by_group
from foldaway.inference.claim import DIFFERS, Claim
from foldaway.inference.group_regression import left_out_levels
from foldaway.inference.intervals import critical
from foldaway.inference.jackknife import Cells, adjusted_mean, cells_of, jackknife, jackknifed, mean
from foldaway.inference.levels import ArmEffect, Levels, difference_of, fieller, withheld
from foldaway.inference.reading.source import Source
from foldaway.inference.reading.within import cells_within
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import spread_of
from foldaway.numerics.block import Floats
from foldaway.tallies.complete_cases import CompleteCases


def complier_levels(source: Source) -> Levels:
    """The arms' levels of the outcome, and then those of what was received, with the covariance of all.

    Both are adjusted where the trial can be, and as the rows of ``adjusted`` are: within strata, or by regression while
    the trial is rich.
    """
    if not source.by_group:
        raise EstimateError("the compliers' effect has an error by groups of units alone.")
    places = (*source.places, source.plan.receipt(source.outcome))
    if (strata := source.strata) is not None:
        arms = len(source.plan.arms)
        parts = [cells_within(strata, place, arms, adjusts=strata.shape.adjusted, recentred=False) for place in places]
        return blocked_by_group(*parts[0], *parts[1:])
    if source.cases is not None and not too_few(source.cases.of(places[0])[0]):
        return _regressions(source.cases, places)
    sums = source.sums
    rates = [contrast_rate(spread_of(sums, place)).beta if sums.shape.adjusted else None for place in places]

    def both(*cells: Cells) -> Floats:
        levels = [
            mean(each) if rate is None else adjusted_mean(each, rate, recentred=False)
            for each, rate in zip(cells, rates, strict=True)
        ]
        return np.concatenate(levels, axis=-1)

    levels = jackknife(both, *(cells_of(sums, place) for place in places))
    assert levels.groups is not None
    return levels._replace(
        doubt=np.tile(levels.doubt, (2, 2)), n=np.tile(levels.n, 2), groups=np.tile(levels.groups, 2)
    )


def _regressions(cases: CompleteCases, places: Sequence[int]) -> Levels:
    """Two regressions, with both fitted anew without each group."""
    found = [left_out_levels(cases.of(place)[0].reframed(), cases.of(place)[1], recentred=False) for place in places]
    moments, _ = cases.of(places[0])
    value, without, shown = (np.concatenate([each[i] for each in found], axis=-1) for i in range(3))
    weight = np.tile(moments.moments[..., 0, 0].T, len(found))
    n = np.tile(moments.records.sum(axis=1), len(found))
    return jackknifed(value, without, weight)._replace(n=n, groups=shown)


def complier_effect(levels: Levels, arm: int, confidence: float, claim: Claim = DIFFERS) -> ArmEffect:
    """What is told of one arm, from levels of the outcome and of what was received.

    F of the first stage is how many times its error, squared, the arms differ in what was received.
    Whether it is different from 0 is a test of the outcome's own effect: the ratio is 0 where that is.
    """
    arms = len(levels.value) // 2
    if why := withheld(levels, (arm, 0)):
        return ArmEffect(reliable=False, why=why)
    above, below = difference_of(levels, arm), difference_of(levels, arms + arm, arms)
    contrast = np.zeros((2, 2 * arms))
    contrast[0, [arm, 0]] = contrast[1, [arms + arm, arms]] = 1, -1
    between = float((contrast @ np.nan_to_num(levels.covariance) @ contrast.T)[0, 1])
    a, b, ours, theirs, df = (
        float(each) for each in (above.estimate, below.estimate, above.variance, below.variance, above.df)
    )
    if not math.isfinite(a):  # told to others, an arm without spread has no level
        return ArmEffect(a)
    if not (b and theirs > 0 and ours > 0):
        why = "the arms do not differ in what was received, so nobody's effect can be told from it."
        return ArmEffect(reliable=False, why=why)
    strength = b * b / theirs
    lower, upper, bounded = fieller(a, b, (ours, theirs, between), critical(claim.coverage(confidence), df))
    if not bounded:
        why = (
            f"the arms differ too little in what was received (the first stage's F is {strength:.2g}) for the effect "
            "to have bounds."
        )
        return ArmEffect(a / b, reliable=False, why=why, first_stage=strength)

    def spread(ratio: float) -> float:
        """The error of Δy − ρ Δd."""
        return float(np.sqrt(max(ours - 2 * ratio * between + ratio * ratio * theirs, 0.0)))

    tests = claim.by_student(lambda t: math.copysign(1.0, b) * (a - t * b) / (spread(t) or math.inf), df)
    ends = claim.opened(float(lower), float(upper))
    found = ArmEffect(a / b, None, spread(a / b) / abs(b), df, *ends, *tests, first_stage=strength)
    return found._replace(relative_why="there is no control level to compare compliers with.")
