"""The interacted regression: y on an indicator and covariates per arm, taken at the covariates' mean (Lin 2013).

Taking the effect at the mean over all records, by algebra at the end, equals centring the covariates beforehand. It
takes that mean as if it were fixed. Over samples the mean varies too, which adds δ'Var(x̄)δ to the variance of the
population's effect, with δ the difference of the arms' slopes (Negi and Wooldridge 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.contrast import Contrast, Design, Question, Regression, common_frame, overall_mean
from foldaway.inference.variance import is_clustered
from foldaway.numerics.block import Floats
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.kinds import RECORDS, UNITS
from foldaway.tallies.moments.scores import Scores
from foldaway.tallies.moments.vech import lift


class InPopulation(Contrast):
    """The contrast for the population: its variance allows for the covariates' mean being that of a sample.

    By records for classical and HC errors, by units for CR errors.
    """

    def __init__(self, contrast: Contrast, arms: Sequence[ArmTally], frame: Frame, mean: Floats) -> None:
        super().__init__(contrast.fit, contrast.effect, contrast.base, contrast.center)
        self._arms, self._frame, self._mean = arms, frame, mean

    def variance(self, contrast: Floats, kind: str) -> float:
        """The variance of the contrast, and what the mean adds to it: δ'Var(x̄)δ."""
        # How the contrast moves with the mean: each arm's coefficients times the arm's share in it.
        k = len(self._mean)
        shares, coef = contrast.reshape(-1, k)[:, :1], self.fit.coef.reshape(-1, k)
        slopes: Floats = (shares * coef).sum(axis=0)
        tally = UNITS if is_clustered(kind) else RECORDS
        omega = np.zeros((k, k))
        for arm in self._arms:
            Bx = arm.frame.change_to(self._frame)[:k, :k]
            deviations = Bx - np.outer(Bx[:, 0], self._mean)
            if tally in arm.tallies:
                # x₀(x_j − x̄_j x₀), summed over a cluster, is linear in the tally's v; x₀ is the intercept.
                D = lift(np.tile(Bx[:, 0], (k, 1)), deviations.T)
                omega += D @ cast(Scores, arm.tallies[tally]).vv @ D.T
            elif tally == RECORDS:  # where only classical errors are asked for: of records with equal weights
                X = arm.factor.R[:, :k] @ deviations
                omega += X.T @ X
            else:
                raise EstimateError("errors for the population need the sums by unit, which devices have not sent.")
        weight = sum(float(arm.factor.R[0, 0]) ** 2 for arm in self._arms)
        return super().variance(contrast, kind) + float(slopes @ omega @ slopes) / weight / weight


class Interacted(Regression):
    """A regression for each arm."""

    def design(self, question: Question) -> Design:
        """Indicators and slopes for each arm; levels are read at the covariates' overall mean."""
        A, k = len(question.arms), question.arms[0].shape.regressors
        maps = [np.zeros((A * k, k)) for _ in question.arms]
        for a, L in enumerate(maps):
            L[a * k : (a + 1) * k] = np.eye(k)

        def levels(mean: Floats) -> Floats:
            rows = np.zeros((*mean.shape[:-1], 2, A * k))
            for row, a in enumerate((0, question.arm)):
                rows[..., row, a * k : (a + 1) * k] = mean
            return rows

        return Design(maps, [1.0] * A, levels)

    def fitted(self, question: Question) -> Contrast:
        """The regression, and its contrast."""
        contrast = super().fitted(question)
        if not question.population:
            return contrast
        frame, _ = common_frame(question)
        return InPopulation(contrast, question.arms, frame, overall_mean(question.arms, frame))


ESTIMATOR = Interacted()
