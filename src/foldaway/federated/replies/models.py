"""The regressions that devices reply to in mode scores: what is published of them, and where a reply's numbers stand.

Everything is in one frame, in which the rows of all arms together are orthonormal up to one scale: a score there loses
no digits to a large mean, δ is small, and what devices are sent holds no arm's own second moments.

A device's reply to a model is X'E, with X the first q columns of its framed
rows and E its residuals. Difference and ipw use the intercept alone (q = 1), and E has the intercept in front for ipw,
whose effect for any arm, and relative to the control, is then a combination of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np

from foldaway.errors import EstimateError
from foldaway.federated.messages import Coefficients, Model, packed, unpacked
from foldaway.inference.contrast import Contrast, Question
from foldaway.inference.estimators import estimator
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.offered import estimators_of
from foldaway.plan.vocabulary import ESTIMATORS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.frame import Frame


class Segment(NamedTuple):
    """The part of a reply that belongs to one model: X'E, q by r, plain or corrected for leverage."""

    model: Model
    corrected: bool
    q: int
    r: int
    start: int

    @property
    def place(self) -> slice:
        """Where its numbers stand in the reply."""
        return slice(self.start, self.start + self.q * self.r)


def leverage_of(plan: Plan) -> Literal["CR2", "CR3"] | None:
    """The leverage correction that the plan asks for, if it does."""
    return None if plan.federated is None else plan.federated.leverage


def segments(models: Sequence[Model], k: int) -> list[Segment]:
    """The parts of a reply, in order."""
    parts: list[Segment] = []
    start = 0
    for model in models:
        word = ESTIMATORS[model.estimator]
        q, r = k if word.adjusts else 1, 2 if word.residuals_of else 1
        for corrected in (False,) if model.breads is None else (False, True):
            parts.append(Segment(model, corrected, q, r, start))
            start += q * r
    return parts


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
    for outcome in range(len(plan.outcomes)):
        for name in estimators_of(plan):
            with suppress(EstimateError):  # the final effects say why
                models.append(_model(plan, arms, name, outcome))
    return models


def _model(plan: Plan, arms: Sequence[ArmTally], name: str, outcome: int) -> Model:
    # All arms are in one fit, whichever of them is compared with the control.
    question = Question(arms, list(plan.arms.values()), 1, outcome)
    word = ESTIMATORS[name]
    # The residuals that ipw's scores are combined from are those around the arm's mean.
    contrast = estimator(word.residuals_of or name, question)
    assert isinstance(contrast, Contrast)
    places = range(len(arms))
    deltas = [packed(contrast.fit.reading(a).delta) for a in places]
    breads: list[bytes] | None = None
    if leverage_of(plan) is not None:
        q = arms[0].shape.regressors if word.adjusts else 1
        hats = [contrast.fit.leverage(a) for a in places]
        if word.residuals_of:  # a regression of all records on a constant
            hats = [np.full((1, 1), 1 / sum(float(arm.factor.R[0, 0]) ** 2 for arm in arms))] * len(arms)
        breads = [packed(hat[:q, :q]) for hat in hats]
    return Model(name, outcome, deltas, breads)


def frame_of(published: Coefficients, columns: int) -> Floats:
    """The frame again, K by K."""
    F = np.zeros((columns, columns), order="F")
    F[np.triu_indices(columns)] = unpacked(published.frame, columns * (columns + 1) // 2)
    return F


def readings(segment: Segment, arm: int, F: Floats, framed: Floats, k: int) -> tuple[Floats, Floats]:
    """X and E of framed rows, as a model reads them: of a device's records, or of an arm's factor."""
    column = k + segment.model.outcome
    delta = unpacked(segment.model.deltas[arm], k)
    e = F[column, column] * framed[:, column] - framed[:, :k] @ delta
    columns = [framed[:, 0], e] if segment.r == 2 else [e]
    return framed[:, : segment.q], np.column_stack(columns)
