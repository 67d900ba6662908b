"""Whether several effects differ: those of all arms from nothing, or those of one arm between levels of a segment.

The groups give the covariance of all effects θ jointly, so a unit with records in several arms or levels is right, too.
Under the hypothesis that D θ = 0, the Wald statistic divided by its rank is about F, with the degrees of freedom of the
least certain of the effects and Hotelling's correction for a covariance that is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from foldaway.inference.levels import Levels, difference_of, withheld
from foldaway.numerics.block import Floats


class JointTest(msgspec.Struct, frozen=True):
    """A test of several differences at once.

    Attributes:
        statistic: Wald's statistic over its rank.
        df: How many differences are tested.
        df_error: How well their covariance is known; infinite if the statistic is about χ²/df.
        p_value: How rare differences like these are by chance if there are none.
    """

    statistic: float
    df: int
    df_error: float
    p_value: float


def arms_differ(levels: Levels) -> JointTest | None:
    """The test of whether any arm's level differs from the first's; none if some are unknown.

    Example:
        >>> levels = Levels(np.array([10.0, 11.0, 10.1]), np.eye(3) / 16, np.eye(3) / 99, np.array([99] * 3))
        >>> test = arms_differ(levels)
        >>> test.df, round(test.statistic, 2), round(test.p_value, 4)
        (2, 4.85, 0.009)
    """
    arms = len(levels.value)
    contrasts = np.eye(arms)[1:] - np.eye(arms)[0]
    return _joint(levels, contrasts, [(arm, 0) for arm in range(1, arms)])


def levels_differ(levels: Levels, arms: int, arm: int, told: Sequence[int]) -> JointTest | None:
    """The test of whether one arm's effects differ between levels of a segment; none if fewer than two are told.

    Args:
        levels: Levels of all arms at all levels of the segment, the arms of a level side by side, jointly.
        arms: How many arms there are.
        arm: The arm that is compared with the first.
        told: The places of the levels whose effects can be told.
    """
    pairs = [(level * arms + arm, level * arms) for level in told]
    each = np.eye(levels.value.shape[-1])
    effects = np.array([each[ours] - each[control] for ours, control in pairs]).reshape(-1, len(each))
    return _joint(levels, effects[1:] - effects[:1], pairs)


def _joint(levels: Levels, D: Floats, pairs: Sequence[tuple[int, int]]) -> JointTest | None:
    """The test of D · levels = 0, in which these pairs of arms are compared."""
    from scipy.special import chdtrc, fdtrc

    rank, involved = len(D), np.flatnonzero(D.any(axis=0))
    if not rank or any(withheld(levels, pair) for pair in pairs):
        return None
    D, values = D[:, involved], (levels.value if levels.away is None else levels.away)[involved]
    covariance = levels.covariance[np.ix_(involved, involved)]
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(covariance))):
        return None
    apart, spread = D @ values, D @ covariance @ D.T
    sizes = np.linalg.eigvalsh(spread)
    if not sizes[0] > rank * np.finfo(float).eps * sizes[-1]:
        return None
    error = min(float(difference_of(levels, *pair).df) for pair in pairs)
    left = error - rank + 1
    if not left >= 1:
        return None
    statistic = float(apart @ np.linalg.solve(spread, apart)) / rank
    if math.isinf(left):
        return JointTest(statistic, rank, left, float(chdtrc(rank, rank * statistic)))
    return JointTest(statistic, rank, left, float(fdtrc(rank, left, statistic * left / error)))
