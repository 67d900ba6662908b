"""What mode scores publishes at its end, and what the coordinator knows of it: the moments that it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import StateError
from foldaway.federated.messages import Model, PublishedCoefficients, Stage, packed
from foldaway.federated.replies.models import ReplySegment, in_one_frame, models_of, readings, segments
from foldaway.federated.replies.tally import Replies
from foldaway.keeping.state import pack, unpack
from foldaway.numerics.block import Floats, Shape
from foldaway.plan import Plan
from foldaway.tallies import arms_of
from foldaway.tallies.moments import ArmTally
from foldaway.trial import Trial

_ROUNDING = 1e-6


class PublishedState(msgspec.Struct, array_like=True):
    """The arms' moments at the end, and the models fitted to them."""

    arms: list[Any]
    models: list[Model]


class Published:
    """The arms' moments at the end, frozen, and the models fitted to them: nothing else is kept of an arm."""

    def __init__(self, plan: Plan, arms: Sequence[ArmTally], models: list[Model]) -> None:
        self.plan = plan
        self.arms = arms
        self.models = models
        self.segments = segments(models)

    @classmethod
    def of(cls, trial: Trial) -> Self:
        """The moments of a trial, and the plan's models fitted to them."""
        arms = in_one_frame(arms_of(trial.tallies))
        return cls(trial.plan, arms, models_of(trial.plan, arms))

    def message(self, stage: Stage, deadline: float) -> PublishedCoefficients:
        """What devices get."""
        F = next(arm for arm in self.arms if arm.n).frame.F  # the same for all, see `in_one_frame`
        return PublishedCoefficients(stage, deadline, packed(F[np.triu_indices(len(F))]), self.models)

    def no_replies(self) -> list[Replies]:
        """The sums of no replies, by arm."""
        return [Replies.empty(self.segments) for _ in self.arms]

    @cached_property
    def most_scores(self) -> list[Floats]:
        """By arm, the largest scores that its records allow."""
        return [_most_scores(arm, place, self.segments) for place, arm in enumerate(self.arms)]

    def dumps(self) -> bytes:
        """As bytes."""
        return pack(PublishedState([arm.state() for arm in self.arms], self.models))

    @classmethod
    def loads(cls, data: bytes, plan: Plan) -> Self:
        """What ``dumps`` gave."""
        state = unpack(data, PublishedState)
        shape = Shape(len(plan.regressors), len(plan.values))
        if len(state.arms) != len(plan.arms):
            raise StateError("the state does not fit its plan: it has another number of arms.")
        return cls(plan, [ArmTally.restore(arm, shape, {}) for arm in state.arms], state.models)


def _most_scores(arm: ArmTally, place: int, segments: Sequence[ReplySegment]) -> Floats:
    """The largest scores that any part of the arm's records can have.

    A device's records are among those whose moments are here, so |Σ x e| over them is at most |x| |e| over all
    (Cauchy and Schwarz).
    """
    k = arm.shape.regressors
    parts = [np.empty(0)]
    for segment in segments:
        X, E = readings(segment, place, arm.frame.F, arm.factor.R, k)
        most = np.outer(np.linalg.norm(X, axis=0), np.linalg.norm(E, axis=0)).ravel()
        slack = _ROUNDING * float(np.linalg.norm(X)) * float(np.linalg.norm(arm.factor.R[:, k + segment.model.outcome]))
        parts.append(most + slack)
    return np.concatenate(parts)
