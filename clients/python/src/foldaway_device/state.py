"""What a device keeps of one trial, and the contract of the stores that keep it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Literal, Protocol, Self

from foldaway_device.floats import base64
from foldaway_device.plan import Plan
from foldaway_device.status import Last

Stage = Literal["collecting", "reporting", Last]
"""What a device is doing: taking records; telling what they came to; and what comes last."""


class State:
    """What a device keeps of one trial. Bytes are in base64.

    Attributes:
        plan: The plan as it was served.
        fingerprint: Its fingerprint, which is all that is left of a trial that was forgotten.
        identity: What the arm is drawn from; it never leaves the device.
        number: The report number: the only thing that the server knows the device by.
        invitation: What lets the device join, if it needs that, as long as it may have to join again.
        enrolled: Whether the server has the number.
        stage: What the device is doing.
        records: How many records were taken.
        fresh: How many of them `sums` is about: in mode scores, those that no message has taken along.
        sums: What these came to, until there is a report.
        covered: In mode scores, what the records came to whose moments are durable.
        moments: In mode scores, moments as they are sent, until they are durable.
        report: The report as it is sent, until it is durable; or for longer, to be withdrawn.
        keep: Whether it is kept for that.
        until: When nothing of the records may be kept any longer, in seconds since 1970; 0 before the first.
    """

    plan: str = ""
    fingerprint: str
    identity: str = ""
    number: str = ""
    invitation: str = ""
    enrolled: bool = False
    stage: Stage = "collecting"
    records: int = 0
    fresh: int = 0
    sums: list[float]
    covered: list[float]
    moments: str = ""
    report: str = ""
    keep: bool = False
    until: float = 0.0

    def __init__(self, fingerprint: str, **kept: object) -> None:
        self.fingerprint, self.sums, self.covered = fingerprint, [], []
        vars(self).update(kept)

    @classmethod
    def new(cls, plan: Plan) -> Self:
        """A device that has just met a plan."""
        return cls(plan.fingerprint, plan=plan.text, identity=new_number(), number=new_number())

    @classmethod
    def loads(cls, text: str) -> Self:
        """What ``dumps`` gave."""
        return cls(**json.loads(text))

    def dumps(self) -> str:
        """As text."""
        return json.dumps(vars(self))

    @property
    def leaves(self) -> bool:
        """Whether it has forgotten all but the message that it still has to send."""
        return self.stage in ("leaving", "withdrawing") and not self.identity

    def end(self, stage: Stage) -> None:
        """The device's part is over, and nothing stays of what its records came to but a report that it is to keep."""
        self.drop()
        self.stage, self.moments = stage, ""
        if not (stage == "counted" and self.keep):
            self.report, self.invitation, self.until = "", "", 0.0

    def drop(self) -> None:
        """Nothing stays of records that are in no message."""
        self.fresh, self.sums, self.covered = 0, [], []

    def forget(self) -> None:
        """Nothing stays but the mark that the trial was forgotten."""
        mark = State(self.fingerprint, stage="forgotten")
        vars(self).clear()
        vars(self).update(vars(mark))

    def expire(self, now: float) -> bool:
        """End it if what its records came to has been kept for too long; whether it has."""
        if not self.until or now <= self.until:
            return False
        if self.stage == "counted":  # the report that it kept
            self.report, self.invitation, self.until = "", "", 0.0
        elif self.leaves:  # it was told to forget, and has waited for its report long enough
            self.forget()
        else:  # what was sent may have been counted all the same
            self.end("expired while pending" if self.report or self.moments else "expired")
        return True


class Held:
    """What is kept of a trial, within a change: what stands here at its end is kept."""

    def __init__(self, state: State | None) -> None:
        self.state = state


class Store(Protocol):
    """Where devices keep their states."""

    def trials(self) -> Iterable[str]:
        """The trials of which something is kept."""
        ...

    def changing(self, trial: str) -> AbstractContextManager[Held]:
        """A change of what is kept of a trial: all of it or, if anything is raised, nothing.

        Changes come one after the other, whoever uses the store.
        """
        ...

    def destroy(self, trial: str) -> None:
        """Keep nothing of a trial whose state cannot be read but the mark that it was forgotten."""
        ...


class MemoryStore:
    """A store that ends with the process, for simulations."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._one = Lock()

    def trials(self) -> list[str]:
        """The trials of which something is kept."""
        return list(self._kept)

    @contextmanager
    def changing(self, trial: str) -> Iterator[Held]:
        """A change of what is kept of a trial."""
        with self._one:
            held = Held(State.loads(self._kept[trial]) if trial in self._kept else None)
            yield held
            if held.state is not None:
                self._kept[trial] = held.state.dumps()

    def destroy(self, trial: str) -> None:
        """Keep the mark alone."""
        with self._one:
            self._kept[trial] = State("", stage="forgotten").dumps()


def new_number() -> str:
    """16 random bytes, in base64."""
    return base64(os.urandom(16))
