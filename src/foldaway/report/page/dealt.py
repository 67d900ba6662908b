"""Into how many groups a plan deals units, what that means for errors, and how many stand behind each kept cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from textwrap import fill
from typing import NamedTuple

from foldaway.errors import many
from foldaway.plan import Plan
from foldaway.plan.groups import spread_of_error
from foldaway.table import ABSENT, number, text_table
from foldaway.tallies import empty_holding, grouped_of


class Dealt(NamedTuple):
    """Cells of one kind.

    Attributes:
        what: What they are of.
        groups: Into how many groups units are dealt.
        parts: How many parts an arm has; infinity if there is no telling.
    """

    what: str
    groups: int
    parts: float

    def units(self, plan: Plan) -> float:
        """The units that are expected in a cell of the smallest arm, if parts are of one size; 0 if unknown."""
        share: float = min(plan.arms.values())
        return (plan.expected_units or 0) * share / self.parts / self.groups


def dealt(plan: Plan) -> Iterator[Dealt]:
    """Every kind of cell that a plan with groups keeps.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="u", expected_units=5_000)
        >>> list(dealt(plan))
        [Dealt(what='arm', groups=128, parts=1.0)]
    """
    held = grouped_of(empty_holding(plan))
    strata = 1 if plan.strata is None else len(plan.strata.probabilities)
    levels = zip(plan.segments, held.segments, strict=True)
    kinds = [("", held, 1.0), *((column, each.cells, plan.parts_of(column)) for column, each in levels)]
    for column, cells, parts in kinds:
        within = f" of a level of {column}" if column else ""
        yield Dealt(f"level of {column}" if column else "arm", cells.shape.groups, parts)
        if cells.strata is not None:
            yield Dealt(f"stratum{within}", cells.strata.shape.groups, parts * strata)
            for place, histogram in zip(plan.exits_by_stratum, cells.strata.histograms, strict=False):
                bins = plan.bins[place]
                yield Dealt(f"bin of {bins.column} of a stratum", histogram.shape.groups, parts * strata * bins.number)
        for bins, histogram in zip(plan.bins, cells.histograms, strict=bool(cells.histograms)):
            yield Dealt(f"bin of {bins.column}{within}", histogram.shape.groups, parts * bins.number)


def dealing(plan: Plan, width: int) -> list[str]:
    """The same for a person; nothing where there are no groups."""
    if not plan.grouped:
        return []
    cells = list(dealt(plan))
    of = "clusters" if plan.cluster is not None else "devices" if plan.unit is None else "units"
    error = (
        f"Errors come from {cells[0].groups:,} groups of {of}; with how {of} fall into them, an error varies by about "
        f"{100 * spread_of_error(cells[0].groups):.1f} % of itself."
    )
    anytime = plan.looks is None and plan.federated is None  # otherwise there is none
    if plan.expected_units is None:
        tightest = ", and where the any-time interval is tightest" if anytime else ""
        more = (
            f"{error} If you know about how many units there will be, write `expected_units` into the plan: from it "
            f"follows how many groups leave nobody alone{tightest}."
        )
        return [fill(more, width, break_on_hyphens=False)]
    expected = many(plan.expected_units, "unit")
    rows = [
        [each.what, f"{each.groups:,}", number(each.units(plan), 2) if math.isfinite(each.parts) else ABSENT]
        for each in cells
    ]
    tightest = f"The any-time interval is tightest at {expected}. So many" if anytime else f"Of {expected}, so many"
    said = f"{error} {tightest} would be in each group:"
    table = text_table(["kept by arm and group", "groups", "units in each"], rows, left=1, width=width)
    return [fill(said, width, break_on_hyphens=False), table]
