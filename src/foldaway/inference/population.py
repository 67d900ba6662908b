"""The extra variance of the interacted estimator when the effect is the population's.

The interacted regression takes the effect at the sample's covariate mean as if that were fixed. Over samples
the mean varies too, which adds δ'Var(x̄)δ with δ the difference of the arms' slopes (Negi and Wooldridge 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.variance import is_clustered
from foldaway.numerics.block import Floats
from foldaway.tallies import RECORDS, UNITS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.frame import Frame
from foldaway.tallies.scores import Scores
from foldaway.tallies.vech import lift


class MeanVariance:
    """Gives δ'Var(x̄)δ for slopes δ: by records for classical and HC errors, by units for CR errors."""

    def __init__(self, arms: Sequence[ArmTally], frame: Frame, mean: Floats) -> None:
        self.arms = arms
        self.frame = frame
        self.mean = mean

    def of(self, slopes: Floats, kind: str) -> float:
        """The variance that the mean adds to an effect with these slopes."""
        tally = UNITS if is_clustered(kind) else RECORDS
        if any(tally not in arm.tallies for arm in self.arms):
            raise EstimateError(
                "errors for the population need a tally that the plan does not keep; add HC1, or CR1, to its `errors`."
            )
        k = len(self.mean)
        omega = np.zeros((k, k))
        for arm in self.arms:
            Bx = arm.frame.change_to(self.frame)[:k, :k]
            # x₀(x_j − x̄_j x₀), summed over a cluster, is linear in the tally's v; x₀ is the intercept.
            deviations = (Bx - np.outer(Bx[:, 0], self.mean)).T
            D = lift(np.tile(Bx[:, 0], (k, 1)), deviations)
            omega += D @ cast(Scores, arm.tallies[tally]).vv @ D.T
        weight = sum(float(arm.factor.R[0, 0]) ** 2 for arm in self.arms)
        return float(slopes @ omega @ slopes) / weight**2
