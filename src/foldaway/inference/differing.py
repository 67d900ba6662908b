"""Whether effects differ between the levels of a segment: a joint test of all their differences.

The levels' effects θ_l have a covariance C, which the groups give jointly: a unit with records in several levels is
right, too. Under the hypothesis that all are alike, the Wald statistic of their differences from the first is, divided
by its rank, about F with the degrees of freedom of the least certain of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldaway.inference.levels import Levels, difference_of
from foldaway.numerics.block import Floats


class Differing(NamedTuple):
    """The test: its statistic, degrees of freedom and p-value."""

    statistic: float
    df: int
    df_error: float
    p_value: float


def differing(levels: Levels, arms: int, arm: int, told: list[int]) -> Differing | None:
    """The test of one arm's effects at the levels that are told; none if there are fewer than two.

    Args:
        levels: Levels of all arms at all levels of the segment, the arms of a level side by side, jointly.
        arms: How many arms there are.
        arm: The arm that is compared with the first.
        told: The places of the levels whose effects can be told.
    """
    from scipy.special import fdtrc

    if len(told) < 2:
        return None
    C = np.zeros((len(told), levels.value.shape[-1]))
    for row, level in enumerate(told):
        C[row, level * arms + arm], C[row, level * arms] = 1, -1
    D: Floats = C[1:] - C[:1]
    values, covariance = np.nan_to_num(levels.value), np.nan_to_num(levels.covariance)
    apart, spread = D @ values, D @ covariance @ D.T
    rank = len(D)
    if np.linalg.matrix_rank(spread, hermitian=True) < rank:
        return None
    error = min(float(difference_of(levels, level * arms + arm, level * arms).df) for level in told)
    statistic = float(apart @ np.linalg.solve(spread, apart)) / rank
    # A covariance from f degrees of freedom is too small in some direction: Hotelling's correction.
    left = max(error - rank + 1, 1.0)
    return Differing(statistic, rank, left, float(fdtrc(rank, left, statistic * left / error)))
