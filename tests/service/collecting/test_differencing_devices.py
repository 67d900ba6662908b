"""The differencing attack on federated trials: what the coordinator holds and answers, subtracted, and solved.

Every device has one record, so whoever isolates a device has a record to the digit. The attacker has the database, its
key, every answer, and what devices get.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from clustered import Kept, moments, reply, report
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import (
    DeviceMoments,
    Enrolment,
    PublishedCoefficients,
    ScoreReply,
    encoded,
    new_number,
    packed,
)
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.models import readings
from foldaway.federated.replies.published import Published
from foldaway.service.collecting.answers import Answer
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import Limits
from foldaway.tallies import arms_of
from plans import in_parts
from stores import Place

N = 250


def plan_of(mode: str, **settings: Any) -> fa.Plan:
    arms = {"a": 0.5, "b": 0.5}
    return fa.Plan(name="target", arm="group", arms=arms, outcomes=["y"], **in_parts({"federated": mode, **settings}))


def incomes(n: int) -> Any:
    return np.round(np.random.default_rng(7).lognormal(8, 1, n), 2)


class Target:
    """A federated trial of devices with one record each."""

    def __init__(self, place: Place, plan: fa.Plan, n: int) -> None:
        self.place, self.plan = place, plan
        self.service = Service(place.open(), "main", Limits())
        self.service.create(plan.to_json())
        self.incomes = incomes(n)
        self.devices = [Kept("ab"[i % 2], np.array([[1.0, y]]), None) for i, y in enumerate(self.incomes)]
        self.numbers = [new_number() for _ in self.devices]
        pairs = zip(self.numbers, self.devices, strict=True)
        self.send("enrolments", [Enrolment(number, device.arm) for number, device in pairs])

    def send(self, kind: Any, messages: list[Any]) -> None:
        self.service.devices.receive("target", kind, [encoded(message) for message in messages])

    def send_one_by_one(self) -> None:
        """Moments, or reports, of one device after the other; the attacker looks after each."""
        self.states = [ServerShare.of(self.plan)]
        kind = "moments" if self.plan.mode == "scores" else "reports"
        for number, device in zip(self.numbers, self.devices, strict=True):
            message = moments(device) if kind == "moments" else report(self.plan, device)
            if kind == "reports":
                assert isinstance(message, DeviceMoments)
                message = DeviceMoments(number, message.arm, message.n, message.factor)
            self.send(kind, [message])
            for state in self.stored():
                if state.trial.n != self.states[-1].trial.n:
                    self.states.append(state)

    def reply(self, published: PublishedCoefficients, which: slice) -> None:
        pairs = list(zip(self.numbers, self.devices, strict=True))[which]
        values = [ScoreReply(number, d.arm, packed(reply(self.plan, published, d.arm, d.rows))) for number, d in pairs]
        self.send("reports", values)

    # The attacker's side: the database, opened with its key, without the store's help.

    def published(self) -> Published | None:
        for (sealed,) in self.place.sql("SELECT published FROM foldaway_endings WHERE trial = 'target'"):
            if sealed is not None:
                return Published.loads(self.place.opened(bytes(sealed), "published:target"), self.plan)
        return None

    def stored(self) -> list[ServerShare]:
        found = self.place.sql("SELECT version, state FROM foldaway_shards WHERE trial = 'target'")
        return [
            ServerShare.of(
                self.plan, self.place.opened(bytes(sealed), f"state:target:main:{version}"), self.published()
            )
            for version, sealed in found
            if sealed is not None
        ]

    def solved_from_states(self) -> int:
        """Devices whose record two successive states give away."""
        return sum(
            abs(one - truth) < 0.005
            for one, truth in zip(self._single_steps(), self.incomes, strict=False)
            if one is not None
        )

    def _single_steps(self) -> list[float | None]:
        return [_only_record(*pair) for pair in pairwise(self.states)]

    def solved_from_sums(self) -> float | None:
        """The record of the one device of the first arm that has not replied: its score is what the others lack."""
        published, states = self.published(), self.stored()
        if published is None or not states or states[0].replies is None:
            return None
        arm, replies = published.arms[0], states[0].replies[0]
        segment, F = replies.segments[0], arm.frame.F
        X, E = readings(segment, 0, F, arm.factor.R, 1)
        missing = float(((X.T @ E).ravel() - replies.sums[segment.place])[0])
        R = arm.raw_factor()
        return float(R[0, 1] / R[0, 0]) + missing


def _only_record(before: ServerShare, after: ServerShare) -> float | None:
    if after.trial.n - before.trial.n != 1:
        return None
    total = 0.0
    for then, now in zip(arms_of(before.trial.tallies), arms_of(after.trial.tallies), strict=True):
        for sign, arm in ((-1, then), (1, now)):
            if arm.n:
                R = arm.raw_factor()
                total += sign * float(R[:, 0] @ R[:, 1])
    return total


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_states_one_device_apart_give_every_record_away(folder: Place, mode: str) -> None:
    """The attack works: cohort = 1 is for tests."""
    target = Target(folder, plan_of(mode, cohort=1), 30)
    target.send_one_by_one()
    assert target.solved_from_states() == 30


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_states_a_cohort_apart_give_none(folder: Place, mode: str) -> None:
    target = Target(folder, plan_of(mode), N)
    target.send_one_by_one()
    assert [after.trial.n - before.trial.n for before, after in pairwise(target.states)] == [100, 100]
    assert target.solved_from_states() == 0


def test_who_alone_does_not_reply_cannot_be_solved_for(folder: Place) -> None:
    """While replies come in the database has what it takes; after the end nobody has, and no answer ever had."""
    target = Target(folder, plan_of("scores"), 401)
    target.send("moments", [moments(device) for device in target.devices])
    target.service.end("target", EndRequest(deadline=600))
    published = target.service.devices.coefficients("target")
    target.reply(published, slice(1, None))
    solved = target.solved_from_sums()
    assert solved == pytest.approx(target.incomes[0], abs=0.005)  # the attack works
    answer: Answer = target.service.end("target", EndRequest(deadline=0))
    assert target.solved_from_sums() is None
    assert target.published() is None
    assert target.stored() == []
    about = answer.federated
    assert about is not None
    assert about.integrity is not None
    assert about.integrity.verdict == "some missing"
    assert about.integrity.residual is None
    assert "above rounding" in " ".join(fa.Effects.from_json(bytes(answer.effects)).notes)
    after = target.service.devices.coefficients("target")
    assert (after.stage, after.frame, after.models) == ("ended", b"", [])
