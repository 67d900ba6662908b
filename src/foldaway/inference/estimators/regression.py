"""The pooled regression: y on an indicator per arm and the covariates.

With a pre-period outcome among the covariates this is CUPED (Deng et al. 2013).
"""

from __future__ import annotations

import numpy as np

from foldaway.inference.contrast import Design, Question, Regression
from foldaway.numerics.block import Floats


class Pooled(Regression):
    """One regression of all arms."""

    def design(self, question: Question) -> Design:
        """An indicator per arm, and slopes that the arms share; levels are read at the covariates' overall mean."""
        A, k = len(question.arms), question.arms[0].shape.regressors
        maps = [np.zeros((A + k - 1, k)) for _ in question.arms]
        for a, L in enumerate(maps):
            L[a, 0] = 1
            L[A:, 1:] = np.eye(k - 1)
        indicators = np.eye(A)[[0, question.arm]]

        def levels(mean: Floats) -> Floats:
            slopes = np.repeat(mean[..., None, 1:], 2, axis=-2)
            return np.concatenate([np.broadcast_to(indicators, (*slopes.shape[:-1], A)), slopes], axis=-1)

        return Design(maps, [1.0] * A, levels)


ESTIMATOR = Pooled()
