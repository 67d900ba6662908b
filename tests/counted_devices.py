"""Devices that can be counted: device j has 2^j records.

The number of records in a state, in binary, then says who is in it; one counted twice would carry. A service rounds
that number for whoever asks; with the fixture `exact_counts` it does not.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import foldaway as fa
from foldaway.errors import FoldawayError, TrialEnded
from foldaway.federated.messages import (
    DeviceMoments,
    DeviceSums,
    Enrolment,
    GroupSums,
    Received,
    encoded,
    new_number,
    packed,
)
from foldaway.service.collecting.service import Service
from plans import SMALL, in_parts


def plan_of(name: str, mode: str, **settings: Any) -> fa.Plan:
    return fa.Plan(
        **in_parts(
            {
                **SMALL,
                "name": name,
                "federated": mode,
                "smallest_cell": 1,
                "cohort": 3,
                "device_records": 10**9,
                **settings,
            }
        )
    )


class Simulated:
    """A device that keeps what it has sent until it is durable, and can be told to send it again."""

    def __init__(self, plan: fa.Plan, j: int) -> None:
        self.plan = plan
        self.arm = list(plan.arms)[j % len(plan.arms)]
        self.n = 2**j
        self.number = new_number()
        self.moments = DeviceMoments.of(new_number(), self.arm, self.n, self.triangle(j))
        self.scores: bytes | None = None
        self.states: dict[str, Any] = {}
        self.withdrew = False

    def triangle(self, j: int) -> Any:
        """The factor of as many records with the mean j and some spread."""
        spread = np.sqrt(self.n) if self.n > 1 else 0.0
        return np.array([[np.sqrt(self.n), j * np.sqrt(self.n)], [0.0, spread]])

    def rows(self, j: int) -> Any:
        half = np.ones(self.n) if self.n > 1 else np.zeros(1)
        half[::2] *= -1
        return np.column_stack([np.ones(self.n), j + half])

    def message(self, kind: str) -> bytes:
        self.withdrew |= kind == "withdrawals"
        if kind == "enrolments":
            return encoded(Enrolment(self.number, self.arm))
        if kind == "moments":
            return encoded(self.moments)
        if self.plan.mode == "scores":
            assert self.scores is not None
            return self.scores
        if self.plan.mode == "delta":
            return encoded(DeviceSums(self.number, self.arm, self.n, packed(self.n * np.array([3.0]))))
        if self.plan.mode == "sums":
            group = self.n.bit_length() % self.plan.groups
            return encoded(GroupSums(self.number, self.arm, self.n, group, packed(self.n * np.array([3.0]))))
        return encoded(DeviceMoments(self.number, self.arm, self.n, self.moments.factor))

    def told(self, kind: str, outcome: Received | FoldawayError) -> None:
        if isinstance(outcome, Received) and outcome.durable:
            self.states[kind] = "durable"
        elif isinstance(outcome, TrialEnded) and self.states.get(kind) != "durable":
            self.states[kind] = "too late"


def begun(service: Service, mode: str, count: int = 3, **settings: Any) -> tuple[fa.Plan, list[Simulated]]:
    plan = plan_of(f"{mode}-{time.time_ns()}", mode, **settings)
    service.create(plan.to_toml())
    devices = [Simulated(plan, j) for j in range(count)]
    outcomes = service.devices.receive(plan.name, "enrolments", [d.message("enrolments") for d in devices])
    assert outcomes == [Received(repeated=False, durable=True)] * count
    return plan, devices


def one(service: Service, plan: fa.Plan, kind: Any, message: bytes) -> Received | FoldawayError:
    (outcome,) = service.devices.receive(plan.name, kind, [message])
    return outcome
