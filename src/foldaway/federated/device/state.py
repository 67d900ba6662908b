"""What a device holds of a trial between two calls, and where it stands, for a person or a script to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Self

import msgspec

from foldaway.errors import many
from foldaway.federated.messages import new_number
from foldaway.plan import Plan

Last = Literal["leaving", "counted", "missed", "expired", "expired while pending"]
"""Telling what was reported, having forgotten the rest; and the four ways in which a device ends."""

Stage = Literal["collecting", "reporting", Last]
"""What a device is doing: taking records; telling what they came to; and what comes last."""


class DeviceState(msgspec.Struct):
    """What a device keeps besides records.

    Attributes:
        plan: The plan, in canonical form.
        identity: What the device is assigned to an arm by. It never leaves the device.
        number: The report number: the only thing that the coordinator learns to know it by, and uses once.
        enrolled: Whether the coordinator has the number.
        stage: What the device is doing.
        records: How many records were taken.
        sums: What the records came to, in modes that keep no records, until there is a report.
        report: The report as it is sent, until it is known to be durable; the records are no longer kept then.
        since: When the first of the records was taken, in seconds since 1970.
    """

    plan: str
    identity: bytes
    number: bytes
    enrolled: bool = False
    stage: Stage = "collecting"
    records: int = 0
    sums: bytes = b""
    report: bytes = b""
    since: float | None = None

    @classmethod
    def new(cls, plan: Plan) -> Self:
        """A device that has just met a plan."""
        return cls(plan.canonical().decode(), new_number(), new_number())

    def end(self, stage: Stage) -> None:
        """The device's part is over, and nothing stays of what its records came to."""
        self.stage, self.sums, self.report, self.since = stage, b"", b"", None

    def expire(self, *, waiting: bool) -> None:
        """End it since its time is up; a report, or messages that are waiting, may have been counted all the same."""
        self.end("expired while pending" if self.report or waiting else "expired")

    def expired(self, retention: float, now: float) -> bool:
        """Whether the oldest of the records is older than the plan allows."""
        return self.since is not None and now - self.since > retention


class Forgotten(Exception):
    """There is nothing here any more: the device has forgotten the trial."""


class MemoryStore:
    """What `LocalStore` does, for simulations.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> store = MemoryStore(DeviceState.new(plan))
        >>> with store.changing() as state:
        ...     state.records += 1
        >>> store.state.records
        1
    """

    def __init__(self, state: DeviceState) -> None:
        self.state: DeviceState | None = state
        self._rows: list[tuple[bytes, bytes | None]] = []
        self._messages: dict[bytes, bytes] = {}

    @contextmanager
    def changing(self) -> Iterator[DeviceState]:
        """The state, to be changed in one step."""
        if self.state is None:
            raise Forgotten
        draft = msgspec.structs.replace(self.state)
        before = list(self._rows), dict(self._messages)
        try:
            yield draft
        except BaseException:
            self._rows, self._messages = before
            raise
        self.state = draft

    def add_row(self, row: bytes) -> None:
        """Keep a record's row."""
        self._rows.append((row, None))

    def unsent(self) -> list[bytes]:
        """The rows that no message covers."""
        return [row for row, message in self._rows if message is None]

    def send_later(self, number: bytes, message: bytes) -> None:
        """Keep a message that covers all the rows that none covered before."""
        self._rows = [(row, number if of is None else of) for row, of in self._rows]
        self._messages[number] = message

    def waiting(self) -> list[tuple[bytes, bytes]]:
        """The messages of which it is not known that they are durable."""
        return list(self._messages.items())

    def settle(self, number: bytes, *, durable: bool) -> None:
        """The message is durable, or it will never be: then its rows are dropped."""
        self._messages.pop(number, None)
        if not durable:
            self._rows = [(row, of) for row, of in self._rows if of != number]

    def covered(self) -> list[bytes]:
        """The rows that durable messages cover."""
        return [row for row, of in self._rows if of is not None and of not in self._messages]

    def drop_records(self, *, messages: bool = True) -> None:
        """Delete all rows, and all messages unless these are to stay."""
        self._rows, self._messages = [], {} if messages else self._messages

    def erase(self, fingerprint: str) -> None:
        """Delete everything."""
        self.drop_records()
        self.state = None


Standing = Literal["new", "enrolled", "pending", "waiting for coefficients", Last, "forgotten"]

_MEANING: dict[Standing, str] = {
    "new": "the coordinator does not know of it yet.",
    "enrolled": "the coordinator knows that it takes part, and has no report yet.",
    "pending": "what it sent waits at the coordinator for others to make up a cohort; report again later.",
    "waiting for coefficients": "what it sent is safe; report again when the trial has been closed.",
    "leaving": "everything was deleted but what it has reported, which goes when it is safe; report again later.",
    "counted": "its part is done, and nothing of its records is kept.",
    "missed": "the trial ended without its report, or its reply, and nothing of its records is kept.",
    "expired": "its records were deleted, for they had been kept as long as the plan allows; its report, or its reply, "
    "will be missing.",
    "expired while pending": "its report was deleted, for it had been kept as long as the plan allows; whether it was "
    "counted is not known.",
    "forgotten": "everything was deleted; it cannot take part in this trial again.",
}


@dataclass(frozen=True)
class DeviceStatus:
    """Where a device stands.

    Attributes:
        trial: The trial's name.
        state: In one word, or three.
        records: How many records the device has taken.

    Example:
        >>> print(DeviceStatus("checkout", "counted", 3))
        checkout: counted (3 records taken): its part is done, and nothing of its records is kept.
    """

    trial: str
    state: Standing
    records: int

    @property
    def settled(self) -> bool:
        """Whether reporting again would change nothing."""
        return self.state in ("counted", "missed", "expired", "expired while pending", "forgotten")

    @property
    def durable(self) -> bool:
        """Whether what the device has sent so far is safe, whatever crashes."""
        return self.state in ("waiting for coefficients", "counted")

    def __str__(self) -> str:
        return f"{self.trial}: {self.state} ({many(self.records, 'record')} taken): {_MEANING[self.state]}"
