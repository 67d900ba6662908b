"""The pooled regression: y on an indicator per arm and the covariates.

With a pre-period outcome among the covariates this is CUPED (Deng et al. 2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from foldaway.inference.bootstrap import ArmReplicates, Replicated, lengths, mean_of, solve
from foldaway.inference.contrast import Contrast, Question, common_frame, overall_mean
from foldaway.inference.fit import ArmModel, Fit
from foldaway.numerics.block import Floats


def fitted(question: Question) -> Contrast:
    """The regression, and its contrast."""
    arms = question.arms
    frame, center = common_frame(question)
    k, A = arms[0].shape.regressors, len(arms)
    models = []
    for a, arm in enumerate(arms):
        L = np.zeros((A + k - 1, k))
        L[a, 0] = 1
        L[A:, 1:] = np.eye(k - 1)
        models.append(ArmModel(arm, L))
    effect, base = np.zeros((2, A + k - 1))
    effect[question.arm], effect[0] = 1, -1
    base[0], base[A:] = 1, overall_mean(arms, frame)[1:]
    return Contrast(Fit(models, question.outcome, frame), effect, base, center)


def replicated(question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
    """Slopes from covariates and outcome about their arm's means; then the arms' levels at equal covariates."""
    within = sum(arm.xx - arm.weight[:, None, None] * arm.x[:, :, None] * arm.x[:, None, :] for arm in arms)
    cross = sum(arm.xy - arm.weight[:, None] * arm.x * arm.y[:, None] for arm in arms)
    # Columns that add no direction in the sample have none in a replicate.
    columns = [column - len(arms) + 1 for column in fitted(question).fit.used if column >= len(arms)]
    # What a constant covariate has left about its means is rounding. Only next to its full length does that show.
    whole = lengths(np.sum([arm.xx for arm in arms], axis=0))
    slopes, good = solve(cast(Floats, within), cast(Floats, cross), columns, whole)
    mean = mean_of(arms)
    treated, control = (arm.y + np.einsum("bk,bk->b", mean - arm.x, slopes) for arm in (arms[question.arm], arms[0]))
    return treated - control, control + center, good
