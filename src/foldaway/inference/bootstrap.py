"""The bootstrap: every replicate's moments, and the errors, intervals and tests that their estimates give.

The tallies hold each replicate's weighted moments in the arm's frame, where they are well conditioned, so the normal
equations lose nothing here. All replicates are worked on at once. Errors, percentile intervals and the test are those
of Efron and Tibshirani (1993, ch. 6, 13, 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import EstimateError
from foldaway.inference.claim import DIFFERS, Claim
from foldaway.numerics.block import Floats
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.kinds import REPLICATES
from foldaway.tallies.moments.replicates import Replicates

# A replicate whose regressors, at unit length, are this close to dependent has no regression.
_SINGULAR = 1e-10

# An effect smaller than this share of the control's level is what rounding leaves of no effect at all.
_ROUNDING = 8 * np.finfo(np.float64).eps

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are told of a distribution."""

FEWEST = 200
"""Replicates for quantiles to be told: with fewer, the outer ones are single replicates, or nearly."""

_Mask = NDArray[np.bool_]

Replicated = tuple[Floats, Floats, _Mask]
"""An effect and the control's level in every replicate, and in which replicates there are any."""


class ArmReplicates(NamedTuple):
    """One arm's replicates: total weight, means of the covariates and the outcome, and moments about zero."""

    weight: Floats
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats


class Distribution(NamedTuple):
    """The replicates of an effect and of the control's level, and how many were left out as singular."""

    effects: Floats
    levels: Floats
    left_out: int


class Resampled(NamedTuple):
    """What the replicates say of an effect, of the control's level, and of the effect as a share of that."""

    std_error: float
    base_std_error: float
    covariance: float
    percentile_ci_lower: float
    percentile_ci_upper: float
    percentile_p_value: float
    relative_std_error: float
    relative_percentile_ci_lower: float
    relative_percentile_ci_upper: float
    replicates: int
    replicates_left_out: int


class DistributionForm(NamedTuple):
    """The form of a distribution: quantiles at `SHARES`, and the skewness, which is zero for a symmetric one."""

    quantiles: tuple[float, ...]
    skewness: float


# From tallies to replicates.


def replicates_of(arm: ArmTally) -> int:
    """How many replicates an arm keeps, zero for none."""
    return len(_tally(arm).totals) if REPLICATES in arm.tallies else 0


def replicates_in(frame: Frame, arm: ArmTally, outcome: int) -> ArmReplicates:
    """An arm's replicates in another frame, to which its other tallies need not go."""
    square, cross = _tally(arm).rebase(arm.frame.change_to(frame)).moments(outcome)
    weight = square[:, 0, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return ArmReplicates(weight, square[:, 0] / weight[:, None], cross[:, 0] / weight, square, cross)


def sum_variance(arm: ArmTally, column: Floats) -> float:
    """Σ_j (Σ_{i∈j} w_i x_i'c)² over the units j of an arm, for a combination c of a row's regressors.

    A unit's weight v in a replicate has mean and variance one, so a replicate's Σ_j v_j s_j, for s_j the sum of a unit,
    has the mean Σ_j s_j and the variance Σ_j s_j²: what a clustered error needs, though units were never counted. It is
    estimated with as many degrees of freedom as there are replicates: their mean is known and not estimated.
    """
    k = len(column)
    # vech(x x') begins with the products of the intercept: the sums of x, in the arm's frame.
    sums = _tally(arm).totals[:, :k] @ (arm.frame.F[:k, :k] @ column)
    R = arm.raw_factor()
    return float(np.mean((sums - R[0, 0] * (R[0, :k] @ column)) ** 2))


def _tally(arm: ArmTally) -> Replicates:
    return cast(Replicates, arm.tallies[REPLICATES])


# Regressions in every replicate.


def lengths(square: Floats) -> Floats:
    """The lengths of every replicate's columns; one for a column of zeros."""
    roots: Floats = np.sqrt(np.maximum(np.einsum("bkk->bk", square), 0))
    roots[roots == 0] = 1
    return roots


def solve(square: Floats, cross: Floats, directions: Sequence[int], lengths: Floats) -> tuple[Floats, _Mask]:
    """The coefficients of every replicate, zero for columns without a direction; and which replicates have them."""
    coef = np.zeros_like(cross)
    good: _Mask = np.isfinite(square.sum(axis=(1, 2)) + cross.sum(axis=1))
    if not good.any() or not directions:
        return coef, good
    columns = np.array(directions)
    length = lengths[:, columns]
    scaled = square[:, columns[:, None], columns] / (length[:, :, None] * length[:, None, :])
    good[good] = np.linalg.eigvalsh(scaled[good])[:, 0] > _SINGULAR
    response = (cross[:, columns] / length)[good][:, :, None]
    coef[np.flatnonzero(good)[:, None], columns] = np.linalg.solve(scaled[good], response)[:, :, 0] / length[good]
    return coef, good


# What a distribution comes to.


def resampled(distribution: Distribution, coverage: float, claim: Claim = DIFFERS) -> Resampled:
    """Standard errors, percentile intervals, and the test of a claim that inverts the percentile interval.

    The interval ends at the replicates numbered α(B + 1)/2 from either end (Davison and Hinkley 1997, ch. 5): between
    those lies 1 − α of what another replicate could be, whatever B is, and they are what the test's p-value says.

    Args:
        distribution: The replicates.
        coverage: 1 − α, of an interval with two ends.
        claim: What is tested, and which ends it has.

    Example:
        >>> distribution = Distribution(np.arange(-24.0, 976.0), np.full(1000, 100.0), 0)
        >>> result = resampled(distribution, 0.95)
        >>> round(result.percentile_p_value, 2), round(result.percentile_ci_lower)
        (0.05, 0)
        >>> round(result.relative_percentile_ci_upper, 1)
        9.5
    """
    levels = distribution.levels
    effects = np.where(np.abs(distribution.effects) <= _ROUNDING * np.abs(levels), 0.0, distribution.effects)
    if len(effects) < 2:
        raise EstimateError("fewer than two replicates of the bootstrap have an estimate.")
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    relative = effects[levels != 0] / levels[levels != 0]
    lower, upper = np.quantile(effects, tails, method="weibull")
    relative_error, relative_lower, relative_upper = np.nan, np.nan, np.nan
    if len(relative) > 1:
        relative_error = np.std(relative, ddof=1)
        relative_lower, relative_upper = np.quantile(relative, tails, method="weibull")
    return Resampled(
        float(np.std(effects, ddof=1)),
        float(np.std(levels, ddof=1)),
        float(np.cov(effects, levels)[0, 1]),
        *claim.opened(float(lower), float(upper)),
        _percentile_p_value(effects, claim),
        float(relative_error),
        *claim.opened(float(relative_lower), float(relative_upper), of=float(np.mean(levels))),
        len(effects),
        distribution.left_out,
    )


def _percentile_p_value(effects: Floats, claim: Claim) -> float:
    """The share of replicates outside the claim, the sample itself counted among them.

    Two-sided it is twice the smaller share on one side of zero; within a margin, the larger share beyond one end.
    """
    low, high = (-claim.threshold if claim.alternative == "within" else claim.threshold), claim.threshold
    below, above = ((1 + np.sum(outside)) / (len(effects) + 1) for outside in (effects <= low, effects >= high))
    share = {"two-sided": 2 * min(below, above), "greater": below, "less": above, "within": max(below, above)}
    return float(min(1.0, share[claim.alternative]))


def spread(distribution: Distribution) -> DistributionForm | None:
    """The spread of an effect over the replicates, which tells no single one; None where there are too few of them.

    Example:
        >>> effects = np.linspace(-1.0, 1.0, 1001)
        >>> form = spread(Distribution(effects, np.ones(1001), 0))
        >>> [round(q, 3) for q in form.quantiles], abs(round(form.skewness, 3))
        ([-0.9, -0.5, 0.0, 0.5, 0.9], 0.0)
        >>> spread(Distribution(effects[:100], np.ones(100), 0)) is None
        True
    """
    effects = distribution.effects
    if len(effects) < FEWEST:
        return None
    about = effects - effects.mean()
    deviation = float(np.sqrt(np.mean(about**2)))
    skewness = float(np.mean((about / deviation) ** 3)) if deviation > 0 else 0.0
    return DistributionForm(tuple(float(q) for q in np.quantile(effects, SHARES)), skewness)
