"""Where a device stands in a trial, for a person or a script to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal[
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

_MEANING: dict[State, str] = {
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
class Status:
    """Where a device stands.

    Attributes:
        trial: The trial's name.
        state: In one word, or three.
        records: How many records the device has taken.

    Example:
        >>> print(Status("checkout", "counted", 3))
        checkout: counted (3 records taken): its part is done, and nothing of its records is kept.
    """

    trial: str
    state: State
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
        records = "1 record" if self.records == 1 else f"{self.records:,} records"
        return f"{self.trial}: {self.state} ({records} taken): {_MEANING[self.state]}"
