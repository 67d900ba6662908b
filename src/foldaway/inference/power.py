"""The chance that a trial shows what it was run for, before it has begun.

Let δ be the true effect, s its standard error at a size, f the error's degrees of freedom. What a look shows is that
the effect lies above a bound L if (δ̂ − L)/s > t_f, and the chance of that is a tail of the noncentral t distribution
with the noncentrality (δ − L)/s. A two-sided test asks for either side of zero, non-inferiority for L = −margin, and
equivalence (two one-sided tests) for both sides at once.

Levels are laid out as `levels.Levels`, so that errors and degrees of freedom are those of the analysis itself.

If one looks again and again, an any-time interval with the error s(n) = σ/√n after n records and the reach u(n) of
`anytime.anytime_reach` has left out a bound that the effect lies δ above once δ̂ > u(n) s(n). Let X(n) = n δ̂/σ: a
Brownian motion with drift θ = δ/σ, and the question is when it first meets the curve b(n) = u(n) √n.

The density of X, of the paths that have not met b yet, is carried from one time to the next by Gauss-Legendre
quadrature (Armitage, McPherson and Rowe 1969). Times grow by a constant factor, so the chance at each of them is also
that of a trial that ends there. If one looks all the while, then between two times the path is a Brownian bridge, which
meets the chord of b with the chance exp(−2 (b₁ − x₁)(b₂ − x₂)/Δ) (Siegmund 1985, section 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from foldaway.inference.anytime import anytime_reach
from foldaway.inference.levels import Levels
from foldaway.numerics.block import Floats

# By how much times grow where one looks all the while, and points at each that carry the density.
_FINE = 0.08
_POINTS = 96
# How far from its mean, in standard deviations, the density is carried.
_FAR = 8.0
# The earliest time that is looked at, next to the last.
_EARLIEST = 1e-3
# An error with few degrees of freedom is itself uncertain; this many of its quantiles stand for it.
_ERRORS = 3


class Aim(NamedTuple):
    """What has to be shown.

    Attributes:
        above: The bound that the effect must lie above; None if that is not asked.
        below: The bound that it must lie below; None if that is not asked.
        both: Whether it takes both (equivalence) or either.
        tail: The chance of each to be shown wrongly.
    """

    above: float | None
    below: float | None
    both: bool
    tail: float

    def beyond(self, effect: float) -> list[float]:
        """How far an effect lies beyond each bound that is asked."""
        up = [] if self.above is None else [effect - self.above]
        return up if self.below is None else [*up, self.below - effect]

    def chance(self, sides: Sequence[Floats]) -> Floats:
        """The chance to show it, from the chances of the sides that are asked.

        Both sides: P(A) + P(B) − P(A or B), where the last is 1 unless the interval is wider than the range; below that
        the chance is next to nothing, and told as nothing.
        """
        added: Floats = np.sum(sides, axis=0)
        return np.maximum(added - 1, 0) if self.both else np.minimum(added, 1)


def single_look(aim: Aim, effect: float, error: float, df: float = math.inf) -> float:
    """The chance that a single look shows what is aimed at, given the true effect and the error of its estimate.

    Example:
        >>> either = Aim(0.0, 0.0, both=False, tail=0.025)
        >>> round(single_look(either, 2.8, 1.0), 4), round(single_look(either, 2.8, 1.0, df=10), 4)
        (0.7996, 0.7139)
        >>> round(single_look(Aim(-3.0, 3.0, both=True, tail=0.05), 0.0, 1.0), 4)
        0.8246
    """
    from scipy.special import ndtr, ndtri, stdtrit

    distances = [away / error for away in aim.beyond(effect)]
    if math.isinf(df):
        return float(aim.chance([ndtr(distance + ndtri(aim.tail)) for distance in distances]))
    reach = -float(stdtrit(df, aim.tail))
    return float(aim.chance([_beyond(reach, df, distance) for distance in distances]))


def _beyond(reach: float, df: float, noncentrality: float) -> Floats:
    """P(T > reach), T noncentral t.

    SciPy's function gives NaN where the chance is 0 or 1 to many digits; the normal approximation (Johnson and Welch
    1940) is as good there.
    """
    from scipy.special import nctdtr, ndtr

    exact = 1 - nctdtr(df, noncentrality, reach)
    approximate = ndtr((noncentrality - reach * (1 - 1 / (4 * df))) / math.sqrt(1 + reach**2 / (2 * df)))
    chance: Floats = np.clip(exact if np.isfinite(exact) else approximate, 0, 1)
    return chance


def crossing(
    drift: float,
    last: float,
    *,
    first: float = 1.0,
    growth: float = 0.0,
    tail: float = 0.025,
    tightest_at: int = 10_000,
    df: float = math.inf,
    wider: float = 1.0,
) -> tuple[Floats, Floats]:
    """Times, and the chance that by each of them the interval has left the bound out.

    Args:
        drift: θ, the effect's distance from the bound over the standard deviation of a record.
        last: The number of records at the last look.
        first: That at the first, at least.
        growth: By which share the trial grows between two looks; 0 if one looks all the while.
        tail: The chance to leave it out wrongly, ever.
        tightest_at: The number of records at which the interval is tightest.
        df: The degrees of freedom of the error.
        wider: By how much the error of the interval exceeds that of the estimate.

    Example:
        >>> [round(float(crossing(0.04, 10_000, growth=growth)[1][-1]), 3) for growth in (0, 0.05, 0.5)]
        [0.897, 0.875, 0.848]
    """
    spaced = growth or _FINE
    looks = int(math.log(1 / min(max(first / last, _EARLIEST), 1.0)) / math.log1p(spaced)) + 1
    times = last * (1 + spaced) ** np.arange(1.0 - looks, 1.0)
    reach = anytime_reach(times, 1 - 2 * tail, tightest_at, df) * wider
    if math.isinf(df):
        return times, _met(drift, times, reach, between=not growth)
    from scipy.special import chdtri

    upper = (np.arange(_ERRORS) + 0.5) / _ERRORS
    errors = np.sqrt(chdtri(df, upper) / df)
    return times, np.mean([_met(drift, times, error * reach, between=not growth) for error in errors], axis=0)


def _met(drift: float, times: Floats, reach: Floats, *, between: bool) -> Floats:
    """The chance to have met the curve by each time, at these times or also between them."""
    from scipy.special import ndtr

    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    curve = np.where(np.isfinite(reach), reach, 1e6) * np.sqrt(times)
    mean, deviation = drift * times, np.sqrt(times)
    high = np.minimum(curve, mean + _FAR * deviation)
    low = np.minimum(mean - _FAR * deviation, high - deviation)
    chances = np.empty(len(times))
    x = low[0] + (nodes + 1) / 2 * (high[0] - low[0])
    density = np.exp(-((x - mean[0]) ** 2) / (2 * times[0])) / math.sqrt(2 * math.pi * times[0])
    chances[0] = ndtr((mean[0] - curve[0]) / deviation[0])
    for i in range(1, len(times)):
        mass = density * weights * (high[i - 1] - low[i - 1]) / 2
        step = times[i] - times[i - 1]
        after = low[i] + (nodes + 1) / 2 * (high[i] - low[i])
        moved = after[:, None] - x - drift * step
        kernel = np.exp(-(moved**2) / (2 * step))
        if between:
            kernel *= -np.expm1(-2 * (curve[i] - after)[:, None] * (curve[i - 1] - x) / step)
        density = kernel @ mass / math.sqrt(2 * math.pi * step)
        left = float(density @ weights) * (high[i] - low[i]) / 2
        chances[i] = max(chances[i - 1], 1 - left)
        x = after
    return np.minimum(chances, 1.0)


def design_effect(correlation: float, records_per_unit: float, size_cv: float = 0.0) -> float:
    """How many times the variance is that of independent records: 1 + ((1 + cv²) m − 1) ρ (Kish 1965).

    Args:
        correlation: ρ, of two records of one unit.
        records_per_unit: m, their mean number.
        size_cv: The standard deviation of that number over its mean.

    Example:
        >>> design_effect(0.1, 11), round(design_effect(0.1, 11, size_cv=0.5), 3)
        (2.0, 2.275)
    """
    return 1 + ((1 + size_cv**2) * records_per_unit - 1) * correlation


def expected_levels(
    value: Floats,
    variance: Floats,
    n: Floats,
    *,
    groups: int | None = None,
    units: Floats | None = None,
    size_cv: float = 0.0,
) -> Levels:
    """The arms' levels as they can be expected, of so many records.

    J units of an arm, thrown into G groups at random, make e = J / (1 + cv² + (J − 1)/G) effective groups, as
    `jackknife.group_doubt` counts them; arms meet in 1/G of their records. If e is far below G, the jackknife tells the
    variance too large, by e/(e − 1).

    Args:
        value: The levels.
        variance: Of a record, with the design effect and without what covariates explain.
        n: The number of records.
        groups: Into how many groups units are dealt; None if the error is not the jackknife's.
        units: The number of units; None if records are independent, or if there are many.
        size_cv: As in `design_effect`.
    """
    covariance = np.diag(variance / n)
    if groups is None:
        free = n if units is None else units / (1 + size_cv**2)
        doubt = np.diag(1 / np.maximum(free - 1, 1e-9))
        return Levels(value, covariance, doubt, n)
    effective = np.full(len(n), float(groups))
    if units is not None:
        effective = np.maximum(units / (1 + size_cv**2 + (units - 1) / groups), 1 + 1e-9)
    covariance *= (1 - 1 / groups) * effective / (effective - 1)
    meeting = np.full((len(n), len(n)), 1 / groups)
    np.fill_diagonal(meeting, 1 / effective)
    return Levels(value, covariance, meeting / (1 - meeting), n, np.floor(effective))


def ratio_deviation(
    numerator: tuple[float, float], denominator: tuple[float, float], correlation: float
) -> tuple[float, float]:
    """A ratio's level R and the standard deviation of a record's share in it, (a − R b)/b̄ (delta method).

    Args:
        numerator: The mean and the standard deviation of a.
        denominator: Those of b.
        correlation: Of a and b.

    Example:
        >>> level, sd = ratio_deviation((1.0, 1.5), (4.0, 3.0), 0.8)
        >>> level, round(sd, 4)
        (0.25, 0.25)
    """
    (above, sa), (below, sb) = numerator, denominator
    level = above / below
    variance = (sa**2 - 2 * level * correlation * sa * sb + level**2 * sb**2) / below**2
    return level, math.sqrt(max(variance, 0.0))


def smallest(reaches: Callable[[float], bool], start: float, most: float, within: float = 1e-12) -> float | None:
    """The smallest size from which on a condition holds, up to a share of it; None if it does not even at the most.

    Example:
        >>> round(smallest(lambda x: x * x > 2, 1e-3, 1e6), 9)
        1.414213562
    """
    if reaches(start):
        return start
    low, high = start, start
    while not reaches(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > within * high:
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
