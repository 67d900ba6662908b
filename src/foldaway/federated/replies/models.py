"""The regressions that devices reply to in mode scores: what is published of them, and where a reply's numbers stand.

Everything is in one frame, in which the rows of all arms together are orthonormal up to one scale: a score there loses
no digits to a large mean, δ is small, and what devices are sent holds no arm's own second moments.

A device's reply to a model is X'E, with X the first q columns of its framed rows and E its residuals. Those without
covariates use the intercept alone (q = 1). E has the intercept in front for those by inverse probabilities, whose
effect for any arm, and relative to the control, is a combination of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from foldaway.errors import EstimateError
from foldaway.federated.messages import Model, packed, unpacked
from foldaway.inference.contrast import Question
from foldaway.inference.estimators import estimator
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.reported import estimators_of
from foldaway.plan.vocabulary import ESTIMATORS
from foldaway.tallies.moments import ArmTally, Frame


class ReplySegment(NamedTuple):
    """The part of a reply that belongs to one model: X'E, q by r.

    Its numbers, and their products with one another, begin at these places among those of all parts.
    """

    model: Model
    q: int
    r: int
    start: int
    products_start: int

    @property
    def place(self) -> slice:
        """Where its numbers stand in the reply."""
        return slice(self.start, self.start + self.q * self.r)


def segments(models: Sequence[Model]) -> list[ReplySegment]:
    """The parts of a reply, in order."""
    parts: list[ReplySegment] = []
    start = products_start = 0
    for model in models:
        q, r = model.regressors, 2 if model.intercept else 1
        parts.append(ReplySegment(model, q, r, start, products_start))
        start, products_start = start + q * r, products_start + (q * r) ** 2
    return parts


def read_as(plan: Plan, name: str) -> tuple[int, bool]:
    """How many regressors a model has, and whether devices sum the intercept beside the residual."""
    word = ESTIMATORS[name]
    return len(plan.regressors) if word.adjusts else 1, bool(word.residuals_of)


def in_one_frame(arms: Sequence[ArmTally]) -> list[ArmTally]:
    """The arms in the frame that all their records together make: it says nothing of one arm's moments."""
    filled = [arm for arm in arms if arm.n]
    if not filled:
        return list(arms)
    R: Floats = np.linalg.qr(np.vstack([arm.raw_factor() for arm in filled]), mode="r")  # type: ignore[assignment]
    R *= np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]
    frame = Frame.of(np.asfortranarray(R), filled[0].shape, sum(arm.n for arm in filled))
    return [arm.rebase(Frame(frame.F, arm.n)) if arm.n else arm for arm in arms]


def models_of(plan: Plan, arms: Sequence[ArmTally]) -> list[Model]:
    """Every regression of the plan that the arms' moments can be fitted to."""
    models = []
    for outcome in range(len(plan.values)):
        for name in estimators_of(plan):
            with suppress(EstimateError):  # the final effects say why
                models.append(_model(plan, arms, name, outcome))
    return models


def _model(plan: Plan, arms: Sequence[ArmTally], name: str, outcome: int) -> Model:
    # All arms are in one fit, whichever of them is compared with the control.
    question = Question(arms, list(plan.arms.values()), 1, outcome)
    # Scores by inverse probabilities are combined from residuals about the arm's mean.
    fit = estimator(ESTIMATORS[name].residuals_of or name, question).fit
    deltas = [packed(fit.reading(a).delta) for a in range(len(arms))]
    return Model(name, outcome, *read_as(plan, name), deltas)


def readings(segment: ReplySegment, arm: int, F: Floats, framed: Floats, k: int) -> tuple[Floats, Floats]:
    """X and E of framed rows, as a model reads them: of a device's records, or of an arm's factor."""
    column = k + segment.model.outcome
    delta = unpacked(segment.model.deltas[arm], k)
    e = F[column, column] * framed[:, column] - framed[:, :k] @ delta
    columns = [framed[:, 0], e] if segment.r == 2 else [e]
    return framed[:, : segment.q], np.column_stack(columns)
