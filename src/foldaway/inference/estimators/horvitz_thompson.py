"""The paper's inverse-probability effect: the mean of 1[arm]·y/π_arm − 1[control]·y/π_control (Eq. 3 onwards).

That is Horvitz and Thompson's (1952): it divides by the numbers of records that the probabilities promise. Where an arm
has more or fewer, it takes the outcome's level for an effect; `ipw` divides by those that have come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.inference.bootstrap import ArmReplicates, Replicated
from foldaway.inference.contrast import Estimate, Question, plain_frame, root
from foldaway.inference.few_units import degrees_of_freedom
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import covariance


class WeightedOutcomes:
    """The mean of outcomes divided by the probability of their arm, over all records."""

    def __init__(self, question: Question) -> None:
        self.question = question
        arm, pi = question.arm, question.probabilities
        self.fit = self._mean({arm: 1 / pi[arm], 0: -1 / pi[0]})
        self._effect, self._base = float(self.fit.coef[0]), float(self._mean({0: 1 / pi[0]}).coef[0])
        self._relative, self._ratio = np.nan, None
        if self._base:
            self._relative = self._effect / self._base
            # The ratio's influence is (z − ratio·z_control)/base: again a mean of scaled outcomes.
            self._ratio = self._mean({arm: 1 / pi[arm], 0: -(1 + self._relative) / pi[0]})

    def point(self) -> Estimate:
        """The effect and its share of the control's level."""
        return Estimate(self._effect, np.nan, np.nan, self._base, self._relative, np.nan)

    def estimate(self, kind: str) -> Estimate:
        """Both with their errors."""
        std_error = root(covariance(self.fit, kind)[0, 0])
        relative_error = np.nan
        if self._ratio is not None:
            relative_error = root(covariance(self._ratio, kind)[0, 0]) / abs(self._base)
        df = degrees_of_freedom(self.fit, kind, np.ones(1))
        return self.point()._replace(std_error=std_error, df=df, relative_std_error=relative_error)

    def _mean(self, scales: dict[int, float]) -> Fit:
        """The regression on a constant of the outcome times the arm's scale, zero for arms not named."""
        arms = self.question.arms
        L = np.zeros((1, arms[0].shape.regressors))
        L[0, 0] = 1
        models = [ArmModel(arm, L, scales.get(a, 0.0)) for a, arm in enumerate(arms)]
        return Fit(models, self.question.outcome, plain_frame(arms[0], center=0.0))


fitted = WeightedOutcomes


def replicated(question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
    """The mean in every replicate."""
    total = np.sum([arm.weight for arm in arms], axis=0)
    treated, control = arms[question.arm], arms[0]
    pi = question.probabilities
    up = (treated.xy[:, 0] + center * treated.weight) / (pi[question.arm] * total)
    down = (control.xy[:, 0] + center * control.weight) / (pi[0] * total)
    return up - down, down, total > 0
