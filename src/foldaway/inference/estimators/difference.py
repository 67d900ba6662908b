"""The difference of means: y on an indicator per arm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import ArmReplicates, Replicated
from foldaway.inference.contrast import Contrast, Estimate, Question, common_frame
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import covariance, welch_df
from foldaway.plan.vocabulary import HC2, HC3


class MeanDifference(Contrast):
    """A difference of means, for which HC2 and HC3 come with Welch's degrees of freedom."""

    def estimate(self, kind: str) -> Estimate:
        """The effect and its share of the control's level."""
        involved = np.flatnonzero(self.effect)
        counts = np.array([model.arm.n for model in self.fit.models], dtype=np.float64)[involved]
        if kind in (HC2, HC3) and counts.min() < 2:
            raise EstimateError(f"both arms need two records for {kind}.")
        result = super().estimate(kind)
        if kind not in (HC2, HC3):
            return result
        return result._replace(df=welch_df(np.diag(covariance(self.fit, kind))[involved], counts))


def fitted(question: Question) -> MeanDifference:
    """The regression, and its contrast."""
    arms = question.arms
    frame, center = common_frame(question)
    models = []
    for a, arm in enumerate(arms):
        L = np.zeros((len(arms), arm.shape.regressors))
        L[a, 0] = 1
        models.append(ArmModel(arm, L))
    base, treated = np.eye(len(arms))[[0, question.arm]]
    return MeanDifference(Fit(models, question.outcome, frame), treated - base, base, center)


def replicated(question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
    """The difference in every replicate that has records in both arms."""
    treated, control = arms[question.arm], arms[0]
    good = (treated.weight > 0) & (control.weight > 0)
    return treated.y - control.y, control.y + center, good
