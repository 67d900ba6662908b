"""What a device holds of a trial between two calls, and where it stands, for a person or a script to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import msgspec

from foldaway.errors import many
from foldaway.federated.messages import new_number
from foldaway.plan import Plan

Stage = Literal["collecting", "reporting", "leaving", "counted", "missed", "expired", "expired while pending"]
"""What a device is doing: taking records; telling what they came to; that alone, having forgotten the rest; and the
four ways in which it ends."""


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

    @property
    def has_expired(self) -> bool:
        """Whether it has ended since its time was up."""
        return self.stage in ("expired", "expired while pending")

    def expired(self, retention: float, now: float) -> bool:
        """Whether the oldest of the records is older than the plan allows."""
        return self.since is not None and now - self.since > retention


class Forgotten(Exception):
    """There is nothing here any more: the device has forgotten the trial."""


Standing = Literal[
    "new",
    "enrolled",
    "pending",
    "waiting for coefficients",
    "leaving",
    "counted",
    "missed",
    "expired",
    "expired while pending",
    "forgotten",
]

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
