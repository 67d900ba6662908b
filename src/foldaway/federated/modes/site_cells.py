"""A site's counts and sums by cell: as they are sent, checked and folded."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.errors import MessageError
from foldaway.federated.messages import SiteCells, packed, unpacked
from foldaway.federated.modes.site_groups import regrouped
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.sums import Sums, SumsShape


def sent(sums: Sums, places: NDArray[np.int64]) -> SiteCells:
    """What a site sends of these sums, in these groups."""
    totals = np.stack([sums.totals(column) for column in range(sums.shape.columns)], axis=-1)
    present = msgspec.UNSET if sums.present is None else packed(regrouped(sums.present, places))
    return SiteCells(packed(regrouped(sums.records, places)), packed(regrouped(totals, places)), present)


class TakenCells(NamedTuple):
    """Counts and sums that fit one another.

    Attributes:
        records: By arm and group.
        sums: By arm, group and column.
        present: By arm, group and outcome.
    """

    records: Floats
    sums: Floats
    present: Floats

    @property
    def means(self) -> Floats:
        """Of each cell with records, by column; NaN where nobody has an outcome."""
        there = self.records > 0
        by_column = np.tile(self.present, self.sums.shape[-1] // self.present.shape[-1])
        with np.errstate(invalid="ignore"):
            found: Floats = self.sums[there] / by_column[there]
        return found

    @property
    def rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64], Floats, Floats]:
        """Of each cell with records its arm, its group, and what it holds: as `fold_totals` takes them."""
        arm, group = at = np.nonzero(self.records)
        return arm, group, self.records[at].astype(np.int64), self.sums[at], self.present[at]


def received(plan: Plan, cells: SiteCells, shape: SumsShape) -> TakenCells:
    """What a site has sent, of sums of this shape.

    Raises:
        MessageError: Its numbers do not fit one another, or the plan.
    """
    records = unpacked(cells.records, shape.arms * shape.groups).reshape(shape.arms, shape.groups)
    sums = unpacked(cells.sums, records.size * shape.columns).reshape(*records.shape, shape.columns)
    if (cells.present is msgspec.UNSET) == plan.lacking:
        raise MessageError("the message must count who has each outcome if, and only if, these may be missing.")
    present = np.repeat(records[..., None], len(plan.values), axis=-1)
    if cells.present is not msgspec.UNSET:
        present = unpacked(cells.present, present.size).reshape(present.shape)
    by_column = np.tile(present, shape.columns // len(plan.values))
    counts = np.concatenate([records[..., None], present], axis=-1)
    if np.any(counts < 0) or np.any(counts != np.floor(counts)) or np.any(sums[by_column == 0]):
        raise MessageError("the message's counts of records do not fit its sums.")
    if np.any(present > records[..., None]) or np.any((counts > 0) & (counts < plan.privacy.smallest_cell)):
        raise MessageError("the message's counts do not fit one another, or the plan's `smallest_cell`.")
    return TakenCells(records, sums, present)
