"""What the package raises: one sentence that says what to do next, and no record's value in it."""

from __future__ import annotations


class FoldawayError(Exception):
    """Any error of this package."""


class PlanError(FoldawayError):
    """The address, the token or the plan cannot be used."""


class StateError(FoldawayError):
    """The device has reported, or has forgotten the trial, or its storage cannot be used."""


class RecordError(FoldawayError):
    """The record was not taken.

    Attributes:
        faults: Its columns that are wrong, each with the rule that it breaks.
    """

    def __init__(self, message: str, faults: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.faults = faults or {}


class ServerError(FoldawayError):
    """The server cannot be reached, or refuses.

    Attributes:
        status: The HTTP status; None if there was no answer.
        retry_after: How many seconds the server asks to wait.
    """

    def __init__(self, message: str, status: int | None = None, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status in (408, 429) or self.status >= 500
