"""Effects within strata, combined by the strata's sizes; and whether arms got their share in each.

Units were randomised within strata, so arms are compared there: the level of an arm is Σ_s (n_s/n) ȳ_sa, its variance
Σ_s (n_s/n)² s²_sa/n_sa (Neyman 1923; Imbens and Rubin 2015, chapter 9). Degrees of freedom are Satterthwaite's, over
all arms of all strata.
"""

from __future__ import annotations

import numpy as np

from foldaway.inference.levels import Levels
from foldaway.inference.sample_ratio import SampleRatio, sample_ratio_of_groups, total_is_zero
from foldaway.inference.welch import Spread, spread_of, welch
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.sums import Sums

# Records of each arm that a stratum must expect for Pearson's statistic to be chi-square.
_LEAST_EXPECTED = 10


def blocked(plan: Plan, sums: Sums, outcome: int) -> Levels | None:
    """The arms' levels by stratum, combined; from sums whose arms are those of each stratum side by side.

    None if some arm has fewer than two records in a stratum, so that its spread there is unknown.
    """
    found = spread_of(sums, outcome)
    parts = (*found[:4], found.n if found.effective is None else found.effective)
    n, weight, mean, products, worth = (each.reshape(-1, len(plan.arms), *each.shape[1:]) for each in parts)
    there = n.sum(axis=1) > 0
    spread = Spread(n[there], weight[there], mean[there], products[there], found.level, worth[there])
    if np.any(spread.n < 2):
        return None
    # Records weigh 1/π of their arm besides the plan's own weights, so that the arms of a stratum weigh alike.
    size = (spread.weight * _shares(plan)[there]).sum(axis=1) if plan.weight is not None else spread.n.sum(axis=1)
    each, size = welch(spread), size / size.sum()
    variances = size[:, None] ** 2 * np.diagonal(each.covariance, axis1=-2, axis2=-1)
    variance = variances.sum(axis=0)
    known = np.diagonal(each.doubt, axis1=-2, axis2=-1)
    doubt = np.divide((variances**2 * known).sum(axis=0), variance**2, out=np.zeros(len(variance)), where=variance > 0)
    away = None if each.away is None else size @ each.away
    return Levels(size @ each.value, np.diag(variance), np.diag(doubt), each.n.sum(axis=0), away=away)


def sample_ratio_of_strata(plan: Plan, counts: Floats) -> SampleRatio:
    """The test of the arms' counts, each stratum's against its own probabilities: twice, and the smaller p × 2 counts.

    Counts of a stratum are multinomial, so the sum over strata of what they are away from their expectation has the
    covariance Σ_s n_s (diag(π_s) − π_s π_s'): all strata count, and the same error in each adds up. Opposite errors
    cancel there, and so Pearson's statistics are summed as well, of strata that are large enough for them.

    Args:
        plan: The plan.
        counts: Strata by arms.
    """
    from scipy.special import chdtrc

    there = counts.sum(axis=1) > 0
    shares, counts = _shares(plan)[there], counts[there]
    sizes = counts.sum(axis=1)
    expected, observed = sizes @ shares, counts.sum(axis=0)
    covariance = np.diag(expected) - (shares * sizes[:, None]).T @ shares
    away = (observed - expected)[1:]
    statistic = float(away @ np.linalg.solve(covariance[1:, 1:], away)) if sizes.any() else 0.0
    p = float(chdtrc(len(away), statistic))
    by_stratum = sizes[:, None] * shares
    large = by_stratum.min(axis=1) >= _LEAST_EXPECTED
    if len(sizes) > 1 and large.any():
        each = float(np.sum((counts - by_stratum)[large] ** 2 / by_stratum[large]))
        p, statistic = min((p, statistic), (float(chdtrc(int(large.sum()) * len(away), each)), each))
        p = min(1.0, 2 * p)
    seen = dict(zip(plan.arms, observed.astype(int).tolist(), strict=True))
    return SampleRatio("records", seen, dict(zip(plan.arms, expected.tolist(), strict=True)), statistic, p)


def sample_ratio_of_weights(plan: Plan, weights: Floats, records: Floats) -> SampleRatio:
    """The test of records of units, which weigh one over the probability of their arm in their stratum.

    By the plan's probabilities each arm's weights add up to the number of all records. They do not if the probabilities
    of two strata were swapped. Opposite errors of strata with equal probabilities cancel: sums by group do not have the
    strata. Where all strata have the same ones, or the plan has weights of its own, arms are compared with one another.

    Args:
        plan: The plan.
        weights: Σw by arm and group.
        records: The number of records, likewise.
    """
    everyone = records.sum(axis=0)
    test = total_is_zero((weights - everyone)[:, everyone > 0]) if plan.weight is None else None
    if test is None:
        return sample_ratio_of_groups(weights, dict.fromkeys(plan.arms, 1 / len(plan.arms)), "weighted records")
    seen = {arm: int(weight) for arm, weight in zip(plan.arms, weights.sum(axis=1), strict=True)}
    wanted = dict.fromkeys(plan.arms, float(everyone.sum()))
    return SampleRatio("weighted records", seen, wanted, *test, "groups")


def _shares(plan: Plan) -> Floats:
    """The arms' probabilities, by stratum."""
    assert plan.strata is not None
    return np.array([[shares[arm] for arm in plan.arms] for shares in plan.strata.probabilities.values()])
