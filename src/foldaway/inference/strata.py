"""Effects within strata, combined by the strata's sizes; and whether arms got their share in each.

Units were randomised within strata, so arms are compared there: the level of an arm is Σ_s (n_s/n) ȳ_sa, its variance
Σ_s (n_s/n)² s²_sa/n_sa (Neyman 1923; Imbens and Rubin 2015, chapter 9). Degrees of freedom are Satterthwaite's, over
all arms of all strata.
"""

from __future__ import annotations

import numpy as np

from foldaway.inference.levels import Levels, over
from foldaway.inference.ratio_over_time import ratio_p_value_of_strata, total_is_zero
from foldaway.inference.sample_ratio import SampleRatio, by_groups
from foldaway.inference.welch import Spread, welch
from foldaway.numerics.block import Floats
from foldaway.plan import Plan


def spread_by_stratum(spread: Spread, arms: int) -> Spread:
    """The spread by stratum and arm, of sums in which a stratum's arms stand side by side; of strata with records."""
    assert spread.effective is not None
    split = [each.reshape(-1, arms, *each.shape[1:]) for each in (*spread[:4], spread.effective)]
    n, weight, mean, products, worth = (each[split[0].sum(axis=1) > 0] for each in split)
    return Spread(n, weight, mean, products, spread.level, worth)


def blocked(spread: Spread, rate: float | None = None) -> Levels | None:
    """The arms' levels by stratum, combined; adjusted, with a rate λ.

    None if some arm has fewer than two records in a stratum, so that its spread there is unknown.

    Args:
        spread: By stratum and arm.
        rate: As `welch` takes it.
    """
    if np.any(spread.n < 2):
        return None
    size = spread.weight.sum(axis=1)
    each, size = welch(spread, rate), size / size.sum()
    covariances = size[:, None, None] ** 2 * each.covariance
    covariance, variances = covariances.sum(axis=0), np.diagonal(covariances, axis1=-2, axis2=-1)
    variance, known = variances.sum(axis=0), np.diagonal(each.doubt, axis1=-2, axis2=-1)
    doubt = np.divide((variances**2 * known).sum(axis=0), variance**2, out=np.zeros(len(variance)), where=variance > 0)
    away = None if each.away is None else size @ each.away
    return Levels(size @ each.value, covariance, np.diag(doubt), each.n.sum(axis=0), away=away)


def sample_ratio_of_strata(plan: Plan, counts: Floats) -> SampleRatio:
    """The test of the arms' counts, each stratum's against its own probabilities.

    Args:
        plan: The plan.
        counts: Strata by arms.
    """
    shares = plan.strata_shares
    seen = dict(zip(plan.arms, counts.sum(axis=0).astype(int).tolist(), strict=True))
    expected = dict(zip(plan.arms, (counts.sum(axis=1) @ shares).tolist(), strict=True))
    return SampleRatio("records", seen, expected, ratio_p_value_of_strata(counts, shares))


def sample_ratio_of_weights(plan: Plan, weights: Floats, records: Floats) -> SampleRatio:
    """The test of records of units, which weigh one over the probability of their arm in their stratum.

    By the plan's probabilities each arm's weights add up to the number of all records. They do not if the probabilities
    of two strata were swapped. Opposite errors of strata with equal probabilities cancel: sums by group do not have the
    strata. Where the plan has weights of its own, arms are compared with one another.

    Args:
        plan: The plan.
        weights: Σw by arm and group.
        records: The number of records, likewise.
    """
    arms, everyone = len(plan.arms), records.sum(axis=0)
    if plan.weight is None:
        shares, wanted = np.array(list(plan.arms.values())), everyone
        tests = arms if arms > 2 or plan.shares_differ else 1
    else:
        weights = weights * over(records.sum(), weights.sum())
        shares, wanted, tests = np.full(arms, 1 / arms), weights.sum(axis=0) / arms, arms if arms > 2 else 1
    # In units of records: of an arm with the share π, each weighs about 1/π.
    size = shares if plan.weight is None else np.ones(arms)
    p_value = float(total_is_zero((weights - wanted) * size[:, None], everyone, shares, tests))
    # The nudge is far beyond what the order of summation changes, so that this changes no count.
    seen = {arm: int(weight + 0.5 + 1e-6) for arm, weight in zip(plan.arms, weights.sum(axis=1), strict=True)}
    return by_groups("weighted records", seen, dict.fromkeys(plan.arms, float(wanted.sum())), p_value)


def over_strata(counts: Floats, weights: Floats) -> Floats:
    """Counts by stratum and arm side by side, and what follows, times a weight of each, over all strata.

    Example:
        >>> over_strata(np.array([1.0, 2.0, 10.0, 20.0]), np.array([[1.0, 1.0], [2.0, 0.5]])).tolist()
        [21.0, 12.0]
    """
    split = counts.reshape(*weights.shape, *counts.shape[1:])
    summed: Floats = np.einsum("sa,sa...->a...", weights, split)
    return summed
