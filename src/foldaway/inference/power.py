"""The chance that a trial shows what it was run for, before it has begun.

Let δ be the true effect, s its standard error at a size, f the error's degrees of freedom. What a look shows is that
the effect lies above a bound L if (δ̂ − L)/s > t_f, and the chance of that is a tail of the noncentral t distribution
with the noncentrality (δ − L)/s. A two-sided test asks for either side of zero, non-inferiority for L = −margin, and
equivalence (two one-sided tests) for both sides at once.

Levels are laid out as `levels.Levels`, so that errors and degrees of freedom are those of the analysis itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from foldaway.inference.levels import Levels
from foldaway.numerics.block import Floats


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
    """The chance that a single look shows what is aimed at.

    Args:
        aim: What has to be shown.
        effect: The true effect.
        error: The standard error of its estimate.
        df: The degrees of freedom of that.

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
