"""Mode sums: a device draws a group, and keeps a count, the sum of each value and, with coefficients, of each ỹ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foldaway_device.floats import packed
from foldaway_device.modes.mode import Holding, Mode, added
from foldaway_device.plan import Plan
from foldaway_device.predictor import adjusted
from foldaway_device.rows import Row


class Sums(Mode):
    """Sums of the values and of what the covariates leave of them, in a group."""

    name = "sums"

    def take_in(self, plan: Plan, sums: Sequence[float], row: Row) -> list[float]:
        """The sums with one more record's y and ỹ."""
        return added(sums, [*row.y, *adjusted(plan, row)])

    def report(self, plan: Plan, holding: Holding, published: Mapping[str, Any] | None) -> dict[str, Any]:
        """The group, the count and the sums."""
        number, arm, group, n, sums = holding
        return {"number": number, "arm": arm, "n": n, "group": group, "sums": packed(sums)}
