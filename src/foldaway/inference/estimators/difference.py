"""The difference of means: y on an indicator per arm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import ArmReplicates, Replicated
from foldaway.inference.contrast import Contrast, Estimate, Question, common_frame
from foldaway.inference.few_units import welch_degrees
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import covariance, cr1_by_arm
from foldaway.numerics.block import Floats
from foldaway.plan.vocabulary import CR1, HC2, HC3


class MeanDifference(Contrast):
    """A difference of means, for which HC2 and HC3 come with Welch's degrees of freedom; CR1 is corrected by arm."""

    def estimate(self, kind: str) -> Estimate:
        """The effect and its share of the control's level."""
        involved = np.flatnonzero(self.effect)
        counts = np.array([model.arm.n for model in self.fit.models], dtype=np.float64)[involved]
        if kind in (HC2, HC3) and counts.min() < 2:
            raise EstimateError(f"both arms need two records for {kind}.")
        result = super().estimate(kind)
        if kind not in (HC2, HC3):
            return result
        return result._replace(df=welch_degrees(np.diag(covariance(self.fit, kind))[involved], counts))

    def variance(self, contrast: Floats, kind: str) -> float:
        """The variance of a combination of the means."""
        common = super().variance(contrast, kind)
        return float(contrast @ cr1_by_arm(self.fit) @ contrast) if kind == CR1 else common


def fitted(question: Question) -> MeanDifference:
    """The regression, and its contrast."""
    return mean_difference(question, [1.0] * len(question.arms))


def mean_difference(question: Question, weights: Sequence[float]) -> MeanDifference:
    """The regression in which each record has the weight of its arm, and its contrast."""
    arms = question.arms
    frame, center = common_frame(question)
    models = []
    for a, (arm, root) in enumerate(zip(arms, np.sqrt(weights).tolist(), strict=True)):
        L = np.zeros((len(arms), arm.shape.regressors))
        L[a, 0] = root
        models.append(ArmModel(arm, L, root))
    base, treated = np.eye(len(arms))[[0, question.arm]]
    return MeanDifference(Fit(models, question.outcome, frame), treated - base, base, center)


def replicated(question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
    """The difference in every replicate that has records in both arms."""
    treated, control = arms[question.arm], arms[0]
    good = (treated.weight > 0) & (control.weight > 0)
    return treated.y - control.y, control.y + center, good
