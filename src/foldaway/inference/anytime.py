"""Intervals and p-values that hold however often one looks.

The boundary is the Gaussian mixture of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform central limit
theory and asymptotic confidence sequences", Annals of Statistics 52, 2024): with ρ fixed in advance,
√((nρ² + 1)/(nρ²) · log((nρ² + 1)/α²)) standard errors cover at all n at once. It holds once the error is a good one.
Three things see to that, each of which was seen to fail without:

- The error is the larger of the arm-wise and the pooled one. A small arm that has not shown its spread yet, such as the
  first conversions of an arm with one record in a hundred, would otherwise count as having none.
- There is no interval until min(n_a) · (Σ|v|)² / (n Σv²), the number of records of the smaller arm that carry the
  outcome, reaches a minimum. For a conversion that is the number of conversions to be expected there.
- An error from few groups is itself uncertain: the reach u of the normal mixture becomes t_df⁻¹(Φ(u)), and it takes 16
  groups in each arm.

One-sided claims have the half of the mixture that lies on their side (the one-sided normal mixture of Howard, Ramdas,
McAuliffe and Sekhon 2021): with τ = nρ² and the statistic z, 2/√(τ+1) · exp(z²τ/(2(τ+1))) · Φ(z√(τ/(τ+1))) ever exceeds
1/α in at most a share α of trials whose effect is zero or on the other side. Two such tests, one for each end, decide
whether an effect lies within a margin.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.inference.claim import DIFFERS, Claim
from foldaway.inference.levels import Levels, difference_of, over, withheld
from foldaway.numerics.block import Floats
from foldaway.tallies.sums import Sums

ENOUGH = 20
"""The evidence that the smaller arm needs before there is an interval."""

LEAST_GROUPS_ANYTIME = 16
"""Non-empty groups that each arm needs."""

UNKNOWN_EVIDENCE = (
    "there is no any-time interval in a federated trial with sums: it needs the squares of single records, and devices "
    "and sites send only sums."
)

# How exactly people are told what the interval waits for: not so that cases could be counted.
_COARSE = 5

# Of Newton's method, which doubles the digits with each.
_STEPS = 8

# Sums of a 0/1 outcome agree with one another but for rounding.
_ROUNDING = 1e-9

# Standard errors, beyond which there are no chances to tell apart: the p-value is 0.
_FAR = 1e100


_NOBODY = np.zeros(1)


class Anytime(NamedTuple):
    """An interval and a p-value that hold at all times at once; None, and `why`, while there is none."""

    lower: float | None = None
    upper: float | None = None
    p_value: float | None = None
    p_against: float | None = None
    why: str = ""


def anytime_reach(
    n: Floats, confidence: float, tightest_at: int, df: Floats | float = math.inf, *, one_sided: bool = False
) -> Floats:
    """How many standard errors the interval reaches to each side after n observations.

    At which n it is to be tightest is fixed beforehand. One-sided, it is to hold for one side alone.

    Example:
        >>> [round(float(anytime_reach(np.array(10_000), 0.95, 10_000, df)), 2) for df in (math.inf, 254, 30)]
        [3.04, 3.07, 3.31]
        >>> round(float(anytime_reach(np.array(10_000), 0.95, 10_000, one_sided=True)), 2)
        2.77
    """
    from scipy.special import ndtr, stdtrit

    time = np.asarray(n) * _rho2(confidence, tightest_at)
    if one_sided:
        reach = np.sqrt((time + 1) / time) * _half(np.log(time + 1) / 2 - math.log(2 * (1 - confidence)))
    else:
        reach = np.sqrt((time + 1) / time * np.log((time + 1) / (1 - confidence) ** 2))
    df = np.asarray(df, dtype=np.float64)
    if np.all(np.isinf(df)):
        return reach
    tail = ndtr(-reach)
    through_t = -stdtrit(np.where(np.isinf(df), 1.0, df), np.maximum(tail, np.finfo(np.float64).tiny))
    # So far out that no tail is left, there is no reach to tell.
    return np.where(np.isinf(df), reach, np.where(tail > np.finfo(np.float64).tiny, through_t, np.inf))


def anytime_p_value(
    statistic: Floats,
    n: Floats,
    confidence: float,
    tightest_at: int,
    df: Floats | float = math.inf,
    *,
    one_sided: bool = False,
) -> Floats:
    """The smallest α at which the interval for this n, of confidence 1 − α and the same mixture, leaves out zero.

    One-sided, the interval begins at its lower end and has no other.
    """
    from scipy.special import log_ndtr, ndtri, stdtr

    df = np.asarray(df, dtype=np.float64)
    # On the other side of zero the half of the mixture is below 1, and says nothing.
    size = np.maximum(statistic, 0.0) if one_sided else np.abs(np.asarray(statistic))
    size = np.minimum(size, _FAR)  # whose square is still a number
    z = np.where(np.isinf(df), size, -ndtri(stdtr(np.where(np.isinf(df), 1.0, df), -size)))
    time = np.asarray(n) * _rho2(confidence, tightest_at)
    evidence = z**2 * time / (time + 1) / 2 - np.log(time + 1) / 2
    if one_sided:
        evidence = evidence + math.log(2) + log_ndtr(z * np.sqrt(time / (time + 1)))
    return np.exp(-np.maximum(evidence, 0))


def _half(threshold: Floats) -> Floats:
    """The w ≥ 0 at which w²/2 + log Φ(w) reaches a threshold, by Newton's method from above: the sum is convex."""
    from scipy.special import log_ndtr

    w = np.sqrt(2 * (threshold + math.log(2)))
    for _ in range(_STEPS):
        slope = w + np.exp(-(w**2) / 2 - log_ndtr(w)) / math.sqrt(2 * math.pi)
        w = w - (w**2 / 2 + log_ndtr(w) - threshold) / slope
    return np.asarray(w)


def anytime_variance(levels: Levels, arm: int) -> Floats:
    """The larger of the effect's variance and the one it has if both arms vary alike.

    If σ² is the variance per record, an arm's level has σ²/n_a. The pooled σ² is the mean of n_a V_a over the records
    of both arms; clustering is in V_a, and so in σ².
    """
    ours, theirs = levels.covariance[..., arm, arm], levels.covariance[..., 0, 0]
    if levels.groups is None:  # noise that both levels have in common is none of the effect's
        shared = np.clip(levels.covariance[..., arm, 0], 0, np.minimum(ours, theirs))
        ours, theirs = ours - shared, theirs - shared
    n, m = levels.n[..., arm], levels.n[..., 0]
    per_record = over(n**2 * ours + m**2 * theirs, n + m)
    pooled = over(per_record * (n + m), n * m)
    larger: Floats = np.maximum(difference_of(levels, arm).variance, pooled)
    return larger


def evidence(
    n: Floats,
    total: Floats,
    absolute: Floats,
    squares: Floats,
    weights: tuple[Floats, Floats, Floats] | None = None,
    *,
    either: bool = True,
) -> Floats:
    """min(n_a) · (Σ|v|)² / (n Σv²) over the two arms on the last axis.

    For a 0/1 outcome the rarer of its two values counts, so that churn and retention are judged alike.

    Args:
        n: Records.
        total: Σv, or Σwv.
        absolute: Σ|v|, or Σw|v|.
        squares: Σv², or Σw²v².
        weights: Of records with weights, Σw, Σw² and Σw²v.
        either: Whether the rarer of two values counts; of a denominator, nothing is said by its zeros.

    Example:
        >>> n, ones = np.array([900.0, 100.0]), np.array([18.0, 2.0])
        >>> float(evidence(n, ones, ones, ones)), float(evidence(n, n - ones, n - ones, n - ones))
        (2.0, 2.0)
    """
    everyone = n.sum(axis=-1)
    weight, mass, first = (each.sum(axis=-1) for each in weights or (n, n, total))
    ones, size, second = total.sum(axis=-1), absolute.sum(axis=-1), squares.sum(axis=-1)
    binary = either & (np.abs(first - second) <= _ROUNDING * second) & (np.abs(size - ones) <= _ROUNDING * size)
    zeros = np.maximum(mass - first, 0)
    zeros = np.where(zeros > _ROUNDING * mass, zeros, 0.0)
    rarer = np.minimum(over(ones**2, first), np.nan_to_num(over((weight - ones) ** 2, zeros)))
    carrying = np.nan_to_num(np.where(binary, rarer, over(size**2, second)))
    found: Floats = n.min(axis=-1) * carrying / np.maximum(everyone, 1)
    return found


def carriers_of(sums: Sums, outcome: int) -> Floats:
    """By arm, the effective number of records that carry an outcome, or of groups if those are fewer.

    (Σ|v|)² / Σv² is the number of buyers if all have bought for the same amount, and less if one has bought for most of
    it; of the sums by group it is small if one unit has most records. Of a 0/1 outcome the rarer value counts.
    """
    total = sums.totals(outcome)
    # Half of two arms that are alike: `evidence` has the rule for 0/1 outcomes.
    records = evidence_of(sums, outcome, np.repeat(np.arange(len(total))[:, None], 2, axis=1))
    if total.shape[1] == 1:
        return records
    by_group = np.nan_to_num(over(np.abs(total).sum(axis=1) ** 2, (total**2).sum(axis=1)))
    return np.minimum(np.minimum(records, by_group), _deviating(sums.counts(outcome), total))


def _deviating(counts: Floats, total: Floats) -> Floats:
    """By arm, how many groups deviate from the mean: 3 (Σd²)² / Σd⁴, all of them if their deviations are normal."""
    mean = np.nan_to_num(over(total.sum(axis=1), counts.sum(axis=1)))
    deviation = total - counts * mean[:, None]
    scale = np.abs(deviation).max(axis=1, keepdims=True)
    share = np.nan_to_num(over(deviation, np.broadcast_to(scale, deviation.shape)))
    return np.nan_to_num(3 * over((share**2).sum(axis=1) ** 2, (share**4).sum(axis=1)))


def evidence_of(sums: Sums, outcome: int, arms: NDArray[np.intp], *, either: bool = True) -> Floats:
    """The evidence in the sums of an outcome in pairs of arms, which are on the last axis: see `evidence`."""
    n, total, weight = (
        each.sum(axis=1)[arms] for each in (sums.counts(outcome), sums.totals(outcome), sums.weights(outcome))
    )
    mass = sums.mass[arms, outcome]
    mean = sums.level[outcome] + np.nan_to_num(over(sums.first[arms, outcome], mass))
    squares = sums.square[arms, outcome] + mass * mean**2
    weights = weight, mass, mass * mean
    return evidence(n, total, sums.absolute[arms, outcome], squares, weights, either=either)


class Watched(NamedTuple):
    """What an interval at any time is read from.

    Attributes:
        levels: Those of the control and the arm, by which they are watched; None where there is no interval, as `why`
            says.
        evidence: What `evidence` says of the outcome in these arms.
        n: How many observations there are so far, of all arms: records, or units.
        inflation: By how much the error exceeds the one of a single look; None if the levels tell.
        by_unit: Whether the error comes from units, although not by group.
        why: Why there is no interval.
    """

    levels: Levels | None = None
    evidence: float = 0.0
    n: Floats = _NOBODY
    inflation: float | None = None
    by_unit: bool = False
    why: str = ""


def anytime_effect(watched: Watched, confidence: float, tightest_at: int, claim: Claim = DIFFERS) -> Anytime:
    """The interval at any time for the arm that is watched, or what it waits for."""
    levels = watched.levels
    if levels is None:
        return Anytime(why=watched.why)
    why = withheld(levels, (1, 0))
    if not why and levels.groups is not None:
        groups = int(min(levels.groups[1], levels.groups[0]))
        if groups < LEAST_GROUPS_ANYTIME:
            needed = LEAST_GROUPS_ANYTIME
            why = f"an any-time interval needs units in {needed} groups of each arm; an arm has units in {groups}."
    if why := why or waiting(watched.evidence):
        return Anytime(why=why)
    estimate, variance, df = (float(x) for x in difference_of(levels, 1))
    error = math.sqrt(float(anytime_variance(levels, 1)))
    if watched.inflation is not None:
        error = math.sqrt(variance) * watched.inflation
    df = math.inf if levels.groups is None and not watched.by_unit else df
    return anytime_interval(claim, estimate, error, float(np.sum(watched.n)), confidence, tightest_at, df)


def waiting(found: float) -> str:
    """What an interval waits for with this much evidence; empty if it is enough, which rounding does not decide."""
    found *= 1 + _ROUNDING
    if found >= ENOUGH:
        return ""
    so_far = f"fewer than {_COARSE}" if found < _COARSE else f"about {_COARSE * int(found // _COARSE)}"
    return (
        f"an any-time interval waits until about {ENOUGH} records of the smaller arm carry the outcome; "
        f"so far there are {so_far}."
    )


def anytime_interval(
    claim: Claim, estimate: float, error: float, n: float, confidence: float, tightest_at: int, df: float = math.inf
) -> Anytime:
    """The interval around an estimate with this error, after n observations."""
    count, one_sided = np.asarray(n), claim.alternative != "two-sided"
    reach = float(anytime_reach(count, confidence, tightest_at, df, one_sided=one_sided)) * error
    if not math.isfinite(reach):
        tightest = f"an any-time interval that is to be tightest at {tightest_at:,}"
        return Anytime(why=f"with so few records, {tightest} reaches to infinity.")

    def p_value(z: float, one_sided: bool = False) -> float:
        return float(anytime_p_value(np.asarray(z), count, confidence, tightest_at, df, one_sided=one_sided))

    def away(threshold: float) -> float:
        """In standard errors; without an error, every other number is very far away."""
        apart = estimate - threshold
        return apart / error if error > abs(apart) / _FAR else math.copysign(_FAR, apart) if apart else 0.0

    ends = claim.opened(estimate - reach, estimate + reach)
    return Anytime(*ends, *claim.p_values(away, partial(p_value, one_sided=True), p_value))


def _rho2(confidence: float, tightest_at: int) -> float:
    """Their choice of ρ², which makes the interval tightest at a given n."""
    two_logs = -2 * math.log(1 - confidence)
    return (two_logs + math.log(two_logs + 1)) / tightest_at
