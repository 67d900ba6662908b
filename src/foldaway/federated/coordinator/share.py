"""A coordinator's share of a federated trial: what has come from devices, as tallies. No numbers, no network.

While the trial is open, factors fold into the arms (one-message, delta, and the moments of mode scores). Once mode
scores is closing, the arms are frozen and published, and replies fold into sums. Shares of several servers add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import MessageError, StateError
from foldaway.federated.coordinator.limits import check_size, check_triangle, most_scores, most_squares
from foldaway.federated.coordinator.models import coefficients, in_one_frame, models_of, segments
from foldaway.federated.coordinator.replies import Replies
from foldaway.federated.messages import Coefficients, Model, Moments, Scores, Stage, Sums
from foldaway.keeping.state import pack, unpack
from foldaway.numerics.block import Floats, Shape
from foldaway.plan import Plan
from foldaway.tallies import kinds_of
from foldaway.tallies.arm import ArmTally
from foldaway.trial import Trial


class PublishedState(msgspec.Struct, array_like=True):
    """The arms' moments at the close, and the models fitted to them."""

    arms: list[Any]
    models: list[Model]


class Published:
    """What mode scores publishes at its close: the arms' moments, frozen, and the models fitted to them."""

    def __init__(self, plan: Plan, arms: Sequence[ArmTally], models: list[Model]) -> None:
        self.plan = plan
        self.arms = arms
        self.models = models

    @classmethod
    def of(cls, trial: Trial) -> Self:
        """The moments of a trial, and the plan's models fitted to them."""
        arms = in_one_frame(trial.arms)
        return cls(trial.plan, arms, models_of(trial.plan, arms))

    def message(self, stage: Stage, deadline: float) -> Coefficients:
        """What devices get."""
        return coefficients(self.arms, self.models, stage, deadline)

    def no_replies(self) -> list[Replies]:
        """The sums of no replies, by arm."""
        return [Replies.empty(self.models, len(self.plan.regressors)) for _ in self.arms]

    @cached_property
    def most_scores(self) -> list[Floats]:
        """By arm, the largest scores that its records allow."""
        parts = segments(self.models, len(self.plan.regressors))
        return [most_scores(arm, place, parts) for place, arm in enumerate(self.arms)]

    def dumps(self) -> bytes:
        """As bytes."""
        return pack(PublishedState([arm.state() for arm in self.arms], self.models))

    @classmethod
    def loads(cls, data: bytes, plan: Plan) -> Self:
        """What ``dumps`` gave."""
        state = unpack(data, PublishedState)
        shape = Shape(len(plan.regressors), len(plan.outcomes))
        if len(state.arms) != len(plan.arms):
            raise StateError("the state does not fit its plan: it has another number of arms.")
        return cls(plan, [ArmTally.restore(kept, shape, kinds_of(plan)) for kept in state.arms], state.models)


class ShareState(msgspec.Struct, array_like=True):
    """A share as it is kept."""

    trial: bytes
    replies: list[Any] | None
    devices: list[int]


class Share:
    """What one server has taken in of a federated trial.

    A share is folded into in place; ``copy`` before, where a fold must be undone.

    Attributes:
        plan: The plan.
        trial: The records' tallies.
        replies: The sums of the replies, by arm, once there are some.
        devices: By arm, the devices that have records in the tallies.
    """

    def __init__(
        self,
        plan: Plan,
        trial: Trial | None = None,
        replies: list[Replies] | None = None,
        devices: Sequence[int] | None = None,
    ) -> None:
        self.plan = plan
        self.trial = Trial(plan) if trial is None else trial
        self.replies = replies
        self.devices = [0] * len(plan.arms) if devices is None else list(devices)
        self._most: Floats | None = None  # what is not absurd next to the records here; worked out when it is needed

    def copy(self) -> Self:
        """A share of its own with the same tallies."""
        replies = None if self.replies is None else list(self.replies)
        return type(self)(self.plan, self.trial.copy(), replies, self.devices)

    def code(self, arm: str) -> int:
        """An arm's place in the plan."""
        places = {name: place for place, name in enumerate(self.plan.arms)}
        if arm not in places:
            raise MessageError(f"the message names an arm that the plan has not; its arms are {', '.join(places)}.")
        return places[arm]

    def check(self, message: Moments | Sums) -> Floats:
        """The factor in a message, K by K, if records of the plan can have it.

        Raises:
            MessageError: They cannot.
        """
        self.code(message.arm)
        R = message.triangle(len(self.plan.columns))
        check_triangle(self.plan, message.n, R)
        if self._most is None:
            self._most = most_squares(self.trial.arms)
        if self._most is not None:
            check_size(R, self._most)
        return R

    def check_reply(self, message: Scores, published: Published) -> Floats:
        """The scores in a message, if they can be those of an arm's records.

        Raises:
            MessageError: They cannot.
        """
        place = self.code(message.arm)
        most = published.most_scores[place]
        values = message.values(len(most))
        if np.any(np.abs(values) > most):
            raise MessageError("the message's scores are larger than the arm's own records allow.")
        return values

    def fold(self, messages: Sequence[Moments | Sums], triangles: Sequence[Floats]) -> None:
        """Take checked factors in."""
        if messages:
            codes = np.array([self.code(message.arm) for message in messages], dtype=np.intp)
            counts = np.array([message.n for message in messages], dtype=np.int64)
            self.trial.fold_clusters(codes, counts, np.stack(triangles))
            for code, message in zip(codes, messages, strict=True):
                self.devices[code] += isinstance(message, Sums) or message.first
            self._most = None

    def fold_replies(self, messages: Sequence[Scores], scores: Sequence[Floats], published: Published) -> None:
        """Take checked replies in, one per device."""
        replies = published.no_replies() if self.replies is None else list(self.replies)
        codes = [self.code(message.arm) for message in messages]
        for place in set(codes):
            rows = [values for code, values in zip(codes, scores, strict=True) if code == place]
            replies[place] = replies[place].fold(np.stack(rows))
        self.replies = replies

    def merge(self, other: Share) -> Self:
        """The share of both servers."""
        if self.replies is None or other.replies is None:
            replies = other.replies if self.replies is None else self.replies
        else:
            replies = [a + b for a, b in zip(self.replies, other.replies, strict=True)]
        return type(self)(self.plan, self.trial.merge(other.trial), replies, self._devices_with(other.devices))

    def with_site(self, trial: Trial, units: Mapping[str, int]) -> Self:
        """The share with a site's tallies, of so many units by arm."""
        more = [units[arm] for arm in self.plan.arms]
        return type(self)(self.plan, self.trial.merge(trial), self.replies, self._devices_with(more))

    def _devices_with(self, more: Sequence[int]) -> list[int]:
        return [a + b for a, b in zip(self.devices, more, strict=True)]

    def dumps(self) -> bytes:
        """As bytes."""
        replies = None if self.replies is None else [each.state() for each in self.replies]
        return pack(ShareState(self.trial.dumps(), replies, self.devices))

    @classmethod
    def loads(cls, data: bytes, plan: Plan, published: Published | None = None) -> Self:
        """What ``dumps`` gave; replies can only be read along with what they reply to."""
        state = unpack(data, ShareState)
        trial = Trial.loads(state.trial, plan)
        if len(state.devices) != len(plan.arms) or min(state.devices) < 0:
            raise StateError("the state does not fit its plan: it counts the devices of other arms.")
        if state.replies is None:
            return cls(plan, trial, devices=state.devices)
        if published is None or len(state.replies) != len(plan.arms):
            raise StateError("the state does not fit its plan: it has replies to nothing that was published.")
        k = len(plan.regressors)
        replies = [Replies.restore(kept, published.models, k) for kept in state.replies]
        return cls(plan, trial, replies, state.devices)
