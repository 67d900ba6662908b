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
from foldaway.inference.bootstrap import ArmReplicates, Replicated, lengths, mean_of, moments, solve
from foldaway.inference.contrast import Contrast, Question, common_frame, overall_mean, plain_frame
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import is_clustered
from foldaway.numerics.block import Floats
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.frame import Frame
from foldaway.tallies.kinds import RECORDS, UNITS
from foldaway.tallies.scores import Scores
from foldaway.tallies.vech import lift


def fitted(question: Question) -> Contrast:
    """The regression, and its contrast."""
    arms = question.arms
    frame, center = common_frame(question)
    k, A = arms[0].shape.regressors, len(arms)
    models = []
    for a, arm in enumerate(arms):
        L = np.zeros((A * k, k))
        L[a * k : (a + 1) * k] = np.eye(k)
        models.append(ArmModel(arm, L))
    mean = overall_mean(arms, frame)
    treated, base = np.zeros((2, A * k))
    treated[question.arm * k : (question.arm + 1) * k] = mean
    base[:k] = mean
    contrast = Contrast(Fit(models, question.outcome, frame), treated - base, base, center)
    return InPopulation(contrast, arms, frame, mean) if question.population else contrast


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


def replicated(question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
    """Each arm's regression in the arm's own frame, where it is well conditioned, at the mean of all arms.

    That mean is each replicate's own, so the distribution is that of the population's effect.
    """
    k = arms[0].x.shape[1]
    directions = fitted(question).fit.used  # columns that add none in the sample have none in a replicate
    common, mean = common_frame(question)[0], mean_of(arms)
    levels, goods = [], []
    for number in (question.arm, 0):
        arm = question.arms[number]
        own = plain_frame(arm.frame, k, center)
        square, cross = moments(own, arm, question.outcome)
        columns = [column - number * k for column in directions if number * k <= column < (number + 1) * k]
        coef, good = solve(square, cross, columns, lengths(square))
        levels.append(np.einsum("bk,bk->b", mean @ common.change_to(own)[:k, :k], coef))
        goods.append(good)
    return levels[0] - levels[1], levels[1] + center, goods[0] & goods[1]
