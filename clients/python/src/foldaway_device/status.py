"""Where a device stands, for a person or a script to read."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Ended = Literal["counted", "missed", "withdrawn", "withdrawn too late", "expired", "expired while pending", "forgotten"]
"""The ways in which a device ends."""

Last = Literal["leaving", "withdrawing", Ended]
"""Telling what was reported, having forgotten the rest; taking it out again; and the end."""

Standing = Literal["new", "enrolled", "pending", "waiting for coefficients", Last]

ENDED: tuple[str, ...] = get_args(Ended)

_MEANING: dict[Standing, str] = {
    "new": "the server does not know of it yet.",
    "enrolled": "the server knows that it takes part, and waits for its report.",
    "pending": "what it sent waits at the server for others to make up a cohort; report again later.",
    "waiting for coefficients": "what it sent is safe; report again when the trial has ended.",
    "leaving": "everything was deleted but what it has reported, which goes when it is safe; report again later.",
    "counted": "its part is done, and nothing of its records is kept but the report, if it was asked to keep it.",
    "withdrawing": "its withdrawal waits at the server for others to make up a cohort; withdraw again later.",
    "withdrawn": "its report is not, or no longer, in the trial, and nothing of its records is kept.",
    "withdrawn too late": "the trial ended before the withdrawal; its report may be in the effects, and nothing of its "
    "records is kept.",
    "missed": "the trial ended without its report, or its reply, and nothing of its records is kept.",
    "expired": "what its records came to was deleted, for it had been kept as long as the plan allows; its report, or "
    "its reply, will be missing.",
    "expired while pending": "its report was deleted, for it had been kept as long as the plan allows; whether it was "
    "counted is not known.",
    "forgotten": "everything was deleted; it cannot take part in this trial again.",
}


class Status(NamedTuple):
    """Where a device stands.

    Attributes:
        trial: The trial's name.
        state: In one word, or three.
        records: How many records the device has taken.

    Example:
        >>> print(Status("checkout", "counted", 3))
        checkout: counted (3 records taken): its part is done, and nothing of its records is kept but the report, if ...
    """

    trial: str
    state: Standing
    records: int

    @property
    def settled(self) -> bool:
        """Whether reporting again would change nothing."""
        return self.state in ENDED

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to send."""
        return self.settled or (not self.records and self.state not in ("leaving", "withdrawing"))

    @property
    def meaning(self) -> str:
        """The state in a sentence."""
        return _MEANING[self.state]

    def __str__(self) -> str:
        records = f"{self.records} record{'' if self.records == 1 else 's'}"
        return f"{self.trial}: {self.state} ({records} taken): {self.meaning}"
