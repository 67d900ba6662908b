"""Mode one-message: a device keeps the triangular factor R of its rows z = [1, x, y], R'R = Σ w z z'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from foldaway_device.factor import with_row
from foldaway_device.floats import packed
from foldaway_device.modes.mode import Holding, Mode
from foldaway_device.plan import Plan
from foldaway_device.rows import Row


class OneMessage(Mode):
    """The factor, which says all that clustered errors need."""

    name = "one-message"

    def take_in(self, plan: Plan, sums: Sequence[float], row: Row) -> list[float]:
        """The factor with one more row."""
        root = math.sqrt(row.weight)
        return with_row(sums, [root * number for number in (1.0, *row.x, *row.y)])

    def report(self, plan: Plan, holding: Holding, published: Mapping[str, Any] | None) -> dict[str, Any]:
        """The count and the factor."""
        return moments(holding, first=True)


def moments(holding: Holding, *, first: bool) -> dict[str, Any]:
    """The message with the factor of some records; `first` if the device has sent none before."""
    number, arm, _, n, sums = holding
    return {"number": number, "arm": arm, "n": n, "factor": packed(sums), "first": first}
