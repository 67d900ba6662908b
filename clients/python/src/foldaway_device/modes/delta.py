"""Mode delta: a device keeps a count, and the sum of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foldaway_device.floats import packed
from foldaway_device.modes.mode import Holding, Mode, added
from foldaway_device.plan import Plan
from foldaway_device.rows import Row


class Delta(Mode):
    """Sums of the values alone."""

    name = "delta"

    def take_in(self, plan: Plan, sums: Sequence[float], row: Row) -> list[float]:
        """The sums with one more record's values."""
        return added(sums, row.y)

    def report(self, plan: Plan, holding: Holding, published: Mapping[str, Any] | None) -> dict[str, Any]:
        """The count and the sums."""
        return {"number": holding.number, "arm": holding.arm, "n": holding.n, "sums": packed(holding.sums)}
