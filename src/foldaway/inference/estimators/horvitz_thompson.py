"""The paper's inverse-probability effect: the mean of 1[arm]·y/π_arm − 1[control]·y/π_control (Eq. 3 onwards).

That is Horvitz and Thompson's (1952): it divides by the numbers of records that the probabilities promise. Where an arm
has more or fewer, it takes the outcome's level for an effect; `ipw` divides by those that have come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.inference.bootstrap import ArmReplicates, Replicated
from foldaway.inference.contrast import Contrast, EffectAndLevel, Question, plain_frame, root
from foldaway.inference.few_units import degrees_of_freedom
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import covariance


class WeightedOutcomes(Contrast):
    """The mean of outcomes divided by the probability of their arm, over all records."""

    def __init__(self, question: Question) -> None:
        arm, pi = question.arm, question.probabilities
        one = np.ones(1)
        super().__init__(_mean(question, {arm: 1 / pi[arm], 0: -1 / pi[0]}), one, one, 0.0)
        self._control, self._treated = _mean(question, {0: 1 / pi[0]}), _mean(question, {arm: 1 / pi[arm]})

    def point(self) -> EffectAndLevel:
        """The effect and the control's level."""
        return super().point()._replace(base=float(self._control.coef[0]))

    def estimate(self, kind: str) -> EffectAndLevel:
        """Both with their errors."""
        own, below, above = (float(covariance(fit, kind)[0, 0]) for fit in (self.fit, self._control, self._treated))
        return self.point()._replace(
            std_error=root(own),
            df=degrees_of_freedom(self.fit, kind, self.effect),
            base_std_error=root(below),
            covariance=(above - own - below) / 2,
        )


def _mean(question: Question, scales: dict[int, float]) -> Fit:
    """The regression on a constant of the outcome times the arm's scale, zero for arms not named."""
    k = question.arms[0].shape.regressors
    models = [ArmModel(arm, np.eye(k)[:1], scales.get(a, 0.0)) for a, arm in enumerate(question.arms)]
    return Fit(models, question.outcome, plain_frame(question.arms[0].frame, k, center=0.0))


class HorvitzThompson:
    """The mean over all records of outcomes divided by the probability of their arm."""

    def fitted(self, question: Question) -> WeightedOutcomes:
        """Three such means: the effect's, the control's and the arm's."""
        return WeightedOutcomes(question)

    def replicated(self, question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
        """The mean in every replicate."""
        total = np.sum([arm.weight for arm in arms], axis=0)
        up, down = (
            (arms[a].xy[:, 0] + center * arms[a].weight) / (question.probabilities[a] * total)
            for a in (question.arm, 0)
        )
        return up - down, down, total > 0


ESTIMATOR = HorvitzThompson()
