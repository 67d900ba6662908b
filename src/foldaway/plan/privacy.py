"""The part of a plan that says how many records must stand behind what is stored and answered."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from foldaway.plan.part import Count, Part, Seconds

Retention = Annotated[float, Meta(ge=60, le=10**9, description="a number of seconds from 60 to 10^9")]


class Privacy(Part, frozen=True, kw_only=True):
    """How many records must stand behind what is stored and answered, and how long a device may keep its own.

    Attributes:
        cohort: The fewest records by which two states may differ that a server stores or answers, or that a run over
            files saves. In a federated plan it counts devices.
        max_wait: On a server, seconds after which fewer records than a cohort are stored all the same. Whoever compares
            the states before and after then learns the sum of few records, or of one.
        smallest_cell: On a server, the fewest records of every arm for an answer; devices, in a federated plan.
        remainder: Whether records short of a cohort are left out and counted, or included: on a server at the close, in
            a run over files at its end, where those left out wait for the next run.
        retention: In a federated plan, seconds that a device may keep its records.

    Example:
        >>> Privacy(cohort=50).smallest_cell
        10
    """

    TABLE: ClassVar[str] = "privacy"

    cohort: Count = 100
    max_wait: Seconds | None = None
    smallest_cell: Count = 10
    remainder: Literal["leave_out", "include"] = "leave_out"
    retention: Retention = 2_592_000.0
