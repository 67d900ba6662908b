"""The contract of a mode: what a device keeps in place of its records, and what it sends of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from foldaway_device.plan import Plan
from foldaway_device.rows import Row


class Holding(NamedTuple):
    """What a device holds when it makes a message.

    Attributes:
        number: The message's number, in base64.
        arm: The device's arm.
        group: Its group.
        n: How many records the message is about.
        sums: What these came to.
    """

    number: str
    arm: str
    group: int
    n: int
    sums: Sequence[float]


class Mode(ABC):
    """One way in which a device takes part without giving its records away.

    Attributes:
        name: Its name in a plan.
        replies: Whether the report is a reply to coefficients, which the server publishes when the trial begins to
            end. Until then the device sends moments of its records.
    """

    name: ClassVar[str]
    replies: ClassVar[bool] = False

    def require(self) -> None:
        """Refuse to begin where something is missing that the mode needs.

        Raises:
            PlanError: It is.
        """
        return None

    @abstractmethod
    def take_in(self, plan: Plan, sums: Sequence[float], row: Row) -> list[float]:
        """What is kept in place of records, with one more of them in it; `sums` is empty before the first."""

    @abstractmethod
    def report(self, plan: Plan, holding: Holding, published: Mapping[str, Any] | None) -> dict[str, Any]:
        """The device's report; `published` are the coefficients, in a mode that replies to them."""


def added(sums: Sequence[float], row: Sequence[float]) -> list[float]:
    """The sums with one more row."""
    return [a + b for a, b in zip(sums, row, strict=True)] if sums else list(row)
