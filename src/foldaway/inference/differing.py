"""Whether any of several arms differs from the control.

The groups give the covariance of all effects jointly, so a unit with records in several arms is right, too. If there
are none, the Wald statistic divided by its rank is about F, with the degrees of freedom of the least certain of the
effects and Hotelling's correction for a covariance that is estimated.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from foldaway.inference.levels import Levels, difference_of, withheld


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
    from scipy.special import chdtrc, fdtrc

    rank, pairs = len(levels.value) - 1, [(arm, 0) for arm in range(1, len(levels.value))]
    D = np.eye(rank + 1)[1:] - np.eye(rank + 1)[0]
    values = levels.value if levels.away is None else levels.away
    if not rank or any(withheld(levels, pair) for pair in pairs):
        return None
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(levels.covariance))):
        return None
    apart, spread = D @ values, D @ levels.covariance @ D.T
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
