"""The part of a plan that says how many units must stand behind what is stored and shown."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from foldaway.plan.part import Count, Part

Retention = Annotated[float, Meta(ge=60, le=10**9, description="a number of seconds from 60 to 10^9")]


class Privacy(Part, frozen=True, kw_only=True):
    """How many units must stand behind what is stored and shown, and how long a device may keep its records.

    Attributes:
        cohort: The fewest distinct units that must come before tallies are stored again: on a server, by a consumer of
            a stream, or by a run over files. Without a `unit`, every record is one; in a federated plan every device.
        smallest_cell: The fewest units of every arm behind effects that are shown to others, in all and since effects
            were last shown.
        retention: In a federated plan, seconds that a device may keep its records.

    Example:
        >>> Privacy(cohort=50).smallest_cell
        10
    """

    TABLE: ClassVar[str] = "privacy"

    cohort: Count = 100
    smallest_cell: Count = 10
    retention: Retention = 2_592_000.0
