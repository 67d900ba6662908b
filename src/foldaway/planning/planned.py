"""What is planned for one arm and outcome: effect, size and chance, of which one was asked for."""

from __future__ import annotations

from typing import Literal

import msgspec

from foldaway.planning.comparing import Goal

Wanted = Literal["size", "effect", "margin", "power"]


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the control on one outcome. A number that cannot be told is None, and ``why`` says so.

    ``effect`` is the true one that is assumed, or the smallest one that is found; ``records`` and ``units`` are those
    of the whole trial; ``std_error`` is what the effect's would be; ``power`` is the chance to show what is asked.
    """

    outcome: str
    arm: str
    control: str
    goal: Goal
    level: float
    sd: float
    effect: float | None
    relative: float | None
    margin: float
    power: float | None
    records: int | None
    units: int | None
    days: float | None
    std_error: float | None
    design_effect: float
    explained: float
    why: str | None = None
