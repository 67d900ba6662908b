"""How much a sum over an arm's records varies from replicate to replicate, and with that how much chance gives it.

A unit's weight v in a replicate has mean and variance one, so a replicate's Σ_j v_j s_j, for s_j the sum of a unit, has
the mean Σ_j s_j and the variance Σ_j s_j²: what a clustered error needs, though units were never counted.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.tallies import REPLICATES
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.replicates import Replicates


def replicates_of(arm: ArmTally) -> int:
    """How many replicates an arm keeps, zero for none."""
    return len(cast(Replicates, arm.tallies[REPLICATES]).totals) if REPLICATES in arm.tallies else 0


def sum_variance(arm: ArmTally, column: Floats) -> float:
    """Σ_j (Σ_{i∈j} w_i x_i'c)² over the units j of an arm, for a combination c of a row's regressors.

    Estimated with as many degrees of freedom as there are replicates: their mean is known and not estimated.
    """
    k = len(column)
    # vech(x x') begins with the products of the intercept: the sums of x, in the arm's frame.
    sums = cast(Replicates, arm.tallies[REPLICATES]).totals[:, :k] @ (arm.frame.F[:k, :k] @ column)
    R = arm.raw_factor()
    return float(np.mean((sums - R[0, 0] * (R[0, :k] @ column)) ** 2))
