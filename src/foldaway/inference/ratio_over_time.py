"""The sample-ratio check however often one looks.

**Independent records.** With π the plan's probabilities and n_a the counts, the mixture of multinomial laws over a
Dirichlet law around π with weight k,

    E = Γ(k)/Γ(k + n) · Π_a Γ(kπ_a + n_a) / (Γ(kπ_a) π_a^{n_a}),

is a martingale of mean 1 if the arms are drawn by π. By Ville's inequality it ever reaches 1/α with a chance of α at
most (Lindon and Malek 2022): α is bounded by 1/E, whenever one looks.

**Strata** are independent, and each has probabilities π_s of its own: the product of the strata's E finds errors that
make up for one another. An error that all strata share is found by a likelihood ratio in which an arm's odds are e^θ
times those of the plan, averaged over arms and a few θ. Of both, the mean has a mean of 1 as well.

**Units with several records.** Records of a unit share its arm, so E is not valid: it was wrong in 73 %. Here the sum
over groups of units tells. With d_g the arm's records in group g less the share π of the group's records, t = Σ d_g/√V,
V = G/(G − 1) Σ (d_g − d̄)², becomes z of the same tail probability, and

    p = √(1 + r) exp(−z² r/(2(1 + r))),   r = 4π(1 − π) n/(k D),   D = max(1, V/(nπ(1 − π))),

the normal mixture (Robbins 1970). It takes 20 groups, and holds for large samples only. Of several arms each is
compared with the rest, and the smallest p is multiplied by the number of arms (with two arms, by 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.inference.levels import LEAST_GROUPS, over
from foldaway.numerics.block import Floats

PRIORS = (30.0, 1_000.0)
"""k: how many records the law of arms' shares is worth. Departures of about 1/√k are found soonest, large ones in small
trials by the first; the evidence is the mean over both."""

LEAST_GROUPS_OVER_TIME = 20
"""Non-empty groups that the check takes."""

# Departures that all strata share, as logarithms of odds ratios: evidence is averaged over them.
_TILTS = np.array([0.03, 0.06, 0.125, 0.25, 0.5, 1.0])

# What rounding leaves of a variance that is zero, next to the square of the total.
_NO_SPREAD = 1e-24

# Beyond it a normal distribution has no chances to tell apart.
_TINY = 1e-300


def ratio_p_value(counts: Floats, probabilities: Floats, priors: Sequence[float] = PRIORS) -> Floats:
    """The bound 1/E for independent records, at most 1, over the leading axes.

    Args:
        counts: The number of records or units by arm: (…, A).
        probabilities: The plan's.
        priors: Each k.

    Example:
        >>> ratio_p_value(np.array([[5_000.0, 5_100.0], [5_000.0, 5_600.0]]), np.array([0.5, 0.5])) < 0.001
        array([False,  True])
    """
    return np.asarray(np.exp(-np.maximum(_log_evidence(counts, probabilities, priors), 0)))


def ratio_p_value_of_strata(counts: Floats, probabilities: Floats, priors: Sequence[float] = PRIORS) -> float:
    """The bound for independent records in strata, each with its own probabilities.

    Args:
        counts: Strata by arms.
        probabilities: The plan's, likewise.
        priors: Each k, of each stratum.

    Example:
        >>> swapped = np.array([[700.0, 300.0], [300.0, 700.0]])
        >>> ratio_p_value_of_strata(swapped, np.full((2, 2), 0.5)) < 0.001
        True
    """
    from scipy.special import logsumexp

    apart = float(_log_evidence(counts, probabilities, priors).sum())
    # An arm's odds multiplied by e^θ in all strata: the likelihood ratio is e^{θ n_a} / Π_s (1 + π_sa (e^θ − 1))^{n_s}.
    sizes, odds = counts.sum(axis=1), np.concatenate([-_TILTS, _TILTS])
    paid = np.einsum("s,sat->at", sizes, np.log1p(probabilities[:, :, None] * np.expm1(odds)))
    alike = float(logsumexp(odds * counts.sum(axis=0)[:, None] - paid)) - np.log(paid.size)
    return float(np.exp(-max(np.logaddexp(apart, alike) - np.log(2), 0.0)))


def _log_evidence(counts: Floats, probabilities: Floats, priors: Sequence[float]) -> Floats:
    """log E, over the leading axes."""
    from scipy.special import gammaln

    pi = np.asarray(probabilities, dtype=np.float64)
    n, found = counts.sum(axis=-1), []
    for k in priors:
        each = gammaln(k * pi + counts) - gammaln(k * pi) - counts * np.log(pi)
        found.append(gammaln(k) - gammaln(k + n) + each.sum(axis=-1))
    return _log_mean(found)


def _log_mean(logs: Sequence[Floats]) -> Floats:
    """The logarithm of the mean of numbers given by their logarithms."""
    from scipy.special import logsumexp

    return np.asarray(logsumexp(logs, axis=0) - np.log(len(logs)))


def ratio_p_value_of_groups(
    records: Floats, probabilities: Floats, priors: Sequence[float] = PRIORS, *, once: bool = False
) -> Floats:
    """The p-value at any time from records by group of units; NaN with too few groups.

    Args:
        records: The number of records by arm and group: (…, A, G).
        probabilities: The plan's.
        priors: Each k.
        once: For a single look: the t-test of the groups.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> sound = rng.poisson(100.0, (2, 128))
        >>> float(ratio_p_value_of_groups(sound, np.array([0.5, 0.5]))) > 0.05
        True
        >>> float(ratio_p_value_of_groups(sound * np.array([[1], [2]]), np.array([0.5, 0.5]))) < 0.001
        True
    """
    pi = np.asarray(probabilities, dtype=np.float64)
    everyone = records.sum(axis=-2)
    apart = records - pi[:, None] * everyone[..., None, :]
    arms = len(pi)
    return total_is_zero(apart, everyone, pi, arms if arms > 2 else 1, priors, once=once)


def total_is_zero(
    apart: Floats, everyone: Floats, shares: Floats, tests: int, priors: Sequence[float] = PRIORS, *, once: bool = False
) -> Floats:
    """The p-value at any time for sums over groups that are zero but for chance; NaN with too few groups.

    Args:
        apart: By arm and group how many records the arm has beyond its share: (…, A, G).
        everyone: All records by group: (…, G).
        shares: The arms' probabilities, which with k say what departures are found soonest.
        tests: How many different tests the arms are.
        priors: Each k.
        once: For a single look.
    """
    from scipy.special import ndtri, stdtr

    there = (everyone > 0)[..., None, :]
    groups, n = there.sum(axis=-1), np.where(there, everyone[..., None, :], 0.0).sum(axis=-1)
    apart = np.where(there, apart, 0.0)
    total = apart.sum(axis=-1)
    away = np.where(there, apart - over(total, groups.astype(np.float64))[..., None], 0.0)
    variance = over(groups.astype(np.float64), groups - 1.0) * (away**2).sum(axis=-1)
    size = np.abs(np.divide(total, np.sqrt(variance), out=np.zeros(total.shape), where=variance > 0))
    tail = np.maximum(stdtr(np.maximum(groups - 1, 1), -size), _TINY)
    if once:
        p_value = 2 * tail
    else:
        z = -ndtri(tail)
        share = shares * (1 - shares)
        design = np.maximum(1.0, np.nan_to_num(over(variance, n * share)))
        rates = [4 * share * n / (k * design) for k in priors]
        p_value = np.exp(-_log_mean([z**2 * rate / (2 * (1 + rate)) - np.log1p(rate) / 2 for rate in rates]))
    found = np.minimum(p_value.min(axis=-1) * tests, 1.0)
    enough = groups[..., 0] >= (LEAST_GROUPS if once else LEAST_GROUPS_OVER_TIME)
    alike = (variance <= _NO_SPREAD * total**2) & (total != 0)  # groups that do not vary tell nothing of chance
    return np.where(enough & ~alike.any(axis=-1), found, np.nan)
