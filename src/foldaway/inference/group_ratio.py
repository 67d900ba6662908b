"""The sample-ratio check where units have several records: from the spread of counts between groups.

Let d_g be the arms' counts in group g less those that the plan's probabilities would give of the group's records. Units
are randomised one by one and dealt to groups at random, so the d_g are alike and their sum has the covariance
G/(G − 1) Σ (d_g − d̄)(d_g − d̄)', however many records the units have. Hotelling's T² tests whether it is zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldaway.inference.levels import LEAST_GROUPS
from foldaway.numerics.block import Floats


class GroupRatio(NamedTuple):
    """Hotelling's T² of the arms' counts and its p-value; None, and `why`, if it cannot be told."""

    statistic: float | None
    p_value: float | None
    why: str = ""


def group_ratio(records: Floats, probabilities: Floats) -> GroupRatio:
    """Test the arms' numbers of records against the plan's probabilities.

    An alarm says that either the randomisation broke, or an arm changes how many records a unit has.

    Args:
        records: The number of records by arm and group.
        probabilities: The plan's, by arm.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> sound = rng.poisson(100, (2, 128))
        >>> group_ratio(sound, np.array([0.5, 0.5])).p_value > 0.001
        True
        >>> group_ratio(sound * np.array([[1], [2]]), np.array([0.5, 0.5])).p_value < 0.001
        True
    """
    groups = records[:, records.sum(axis=0) > 0]
    shares = np.asarray(probabilities, dtype=np.float64)[:, None] * groups.sum(axis=0)
    return total_is_zero((groups - shares)[1:])  # the control's is minus the sum of the others'


def total_is_zero(apart: Floats) -> GroupRatio:
    """Hotelling's T² of the sum over groups.

    Args:
        apart: By arm and group, what is to add up to zero but for chance.
    """
    from scipy.special import fdtrc

    free, count = apart.shape
    if count < LEAST_GROUPS + free:
        return GroupRatio(None, None, f"there are units in only {count} groups; it takes {LEAST_GROUPS + free}.")
    away = apart - apart.mean(axis=1, keepdims=True)
    covariance = count / (count - 1) * away @ away.T
    if np.linalg.matrix_rank(covariance) < free:
        return GroupRatio(None, None, "the arms' shares do not vary between groups.")
    total = apart.sum(axis=1)
    statistic = float(total @ np.linalg.solve(covariance, total))
    return GroupRatio(statistic, float(fdtrc(free, count - free, statistic * (count - free) / (free * (count - 1)))))
