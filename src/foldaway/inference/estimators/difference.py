"""The difference of means: y on an indicator per arm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.contrast import Contrast, Design, EffectAndLevel, Question, Regression
from foldaway.inference.few_units import welch_degrees
from foldaway.inference.variance import covariance, cr1_by_arm
from foldaway.numerics.block import Floats
from foldaway.plan.vocabulary import CR1, HC2, HC3


class MeanDifference(Contrast):
    """A difference of means, for which HC2 and HC3 come with Welch's degrees of freedom; CR1 is corrected by arm."""

    def estimate(self, kind: str) -> EffectAndLevel:
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


class DifferenceOfMeans(Regression):
    """Means of arms, whose records weigh alike."""

    def weights(self, question: Question) -> Sequence[float]:
        """By arm, what its records weigh."""
        return [1.0] * len(question.arms)

    def design(self, question: Question) -> Design:
        """An indicator per arm, times the root of its weight."""
        arms, roots = question.arms, np.sqrt(self.weights(question))
        maps = [np.zeros((len(arms), arms[0].shape.regressors)) for _ in arms]
        for a, L in enumerate(maps):
            L[a, 0] = roots[a]
        levels = np.eye(len(arms))[[0, question.arm]]
        return Design(maps, roots.tolist(), lambda mean: levels)

    def fitted(self, question: Question) -> MeanDifference:
        """The regression, and its contrast."""
        found = super().fitted(question)
        return MeanDifference(found.fit, found.effect, found.base, found.center)


ESTIMATOR = DifferenceOfMeans()
