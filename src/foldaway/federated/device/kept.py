"""What a device keeps of a trial between two calls, and the contract of the places it is kept in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

import msgspec

from foldaway.federated.messages import new_number
from foldaway.plan import Plan

Stage = Literal["collecting", "reporting", "leaving", "counted", "missed", "expired", "expired while pending"]
"""What a device is doing: taking records; telling what they came to; that alone, having forgotten the rest; and the
four ways in which it ends."""


class Kept(msgspec.Struct):
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
    def new(cls, plan: Plan) -> Kept:
        """A device that has just met a plan."""
        return cls(plan.canonical().decode(), new_number(), new_number())

    def end(self, stage: Stage) -> None:
        """The device's part is over, and nothing stays of what its records came to."""
        self.stage, self.sums, self.report, self.since = stage, b"", b"", None

    def expire(self, *, waiting: bool) -> None:
        """End it since its time is up; a report, or messages that are waiting, may have been counted all the same."""
        self.end("expired while pending" if self.report or waiting else "expired")

    @property
    def has_expired(self) -> bool:
        """Whether it has ended since its time was up."""
        return self.stage in ("expired", "expired while pending")

    def expired(self, retention: float, now: float) -> bool:
        """Whether the oldest of the records is older than the plan allows."""
        return self.since is not None and now - self.since > retention


class Store(Protocol):
    """Where a device keeps its state; all that happens between ``changing`` and its end happens, or nothing does."""

    def changing(self) -> AbstractContextManager[Kept]:
        """The state, to be changed in one step."""
        ...

    def add_row(self, row: bytes) -> None:
        """Keep a record's row."""
        ...

    def unsent(self) -> list[bytes]:
        """The rows that no message covers."""
        ...

    def send_later(self, number: bytes, message: bytes) -> None:
        """Keep a message, under its number, that covers all the rows that none covered before."""
        ...

    def waiting(self) -> list[tuple[bytes, bytes]]:
        """The messages of which it is not known that they are durable, with their numbers."""
        ...

    def settle(self, number: bytes, *, durable: bool) -> None:
        """The message is durable, or it will never be: then its rows are dropped, for nobody counts on them."""
        ...

    def covered(self) -> list[bytes]:
        """The rows that durable messages cover."""
        ...

    def drop_rows(self) -> None:
        """Delete all rows; the messages that cover them stay."""
        ...

    def drop_records(self) -> None:
        """Delete all rows and messages."""
        ...

    def erase(self, fingerprint: str) -> None:
        """Delete everything, for good, but a mark that the plan of this fingerprint was forgotten."""
        ...


class MemoryStore:
    """A place that ends with the process, for simulations.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> store = MemoryStore(Kept.new(plan))
        >>> with store.changing() as kept:
        ...     kept.records += 1
        >>> store.kept.records
        1
    """

    def __init__(self, kept: Kept) -> None:
        self.kept: Kept | None = kept
        self._rows: list[tuple[bytes, bytes | None]] = []
        self._messages: dict[bytes, bytes] = {}

    @contextmanager
    def changing(self) -> Iterator[Kept]:
        """The state, to be changed in one step."""
        if self.kept is None:
            raise Forgotten
        draft = msgspec.structs.replace(self.kept)
        before = list(self._rows), dict(self._messages)
        try:
            yield draft
        except BaseException:
            self._rows, self._messages = before
            raise
        self.kept = draft

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

    def drop_rows(self) -> None:
        """Delete all rows."""
        self._rows = []

    def drop_records(self) -> None:
        """Delete all rows and messages."""
        self._rows, self._messages = [], {}

    def erase(self, fingerprint: str) -> None:
        """Delete everything."""
        self.drop_records()
        self.kept = None


class Forgotten(Exception):
    """There is nothing here any more: the device has forgotten the trial."""
