"""Cells: an arm and a group of units make one, and records are dealt to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from foldaway.numerics.block import Cells, Floats


class Dealt(NamedTuple):
    """Some records, dealt to cells.

    Attributes:
        cell: Each record's cell: its arm times the number of groups, plus its group.
        columns: Their columns, each a row.
        weight: Observation weights, if there are any.
    """

    cell: Cells
    columns: Floats
    weight: Floats | None


def cell_of(arm: ArrayLike, group: ArrayLike | None, groups: int) -> Cells:
    """The cell of each record.

    Example:
        >>> cell_of([0, 1, 1], [3, 0, 2], groups=4)
        array([3, 4, 6])
    """
    first = np.asarray(arm, dtype=np.intp) * groups
    return first if group is None else first + np.asarray(group)


def taken(by_arm: Floats, places: Sequence[int]) -> Floats:
    """The entries of an array by arm at these places, 0 where a place is -1."""
    padded = np.concatenate([by_arm, np.zeros_like(by_arm[:1])])
    entries: Floats = padded[list(places)]
    return entries


def deal(
    arm: ArrayLike,
    columns: ArrayLike,
    group: ArrayLike | None,
    weight: ArrayLike | None,
    *,
    size: tuple[int, int],
    weighted: bool,
    step: int,
) -> Iterator[Dealt]:
    """Records in steps, each dealt to cells.

    Args:
        arm: Each record's arm.
        columns: The columns, each a row.
        group: Each record's group; all in one if there are no units.
        weight: Observation weights.
        size: How many columns and groups there must be.
        weighted: Whether there must be weights.
        step: Records per step.
    """
    values = np.asarray(columns, dtype=np.float64)
    weights = None if weight is None else np.asarray(weight, dtype=np.float64)
    wide, groups = size
    cell = cell_of(arm, group, groups)
    if values.shape != (wide, len(cell)) or (weights is None) == weighted:
        raise ValueError("the records do not have the shape of the tally")
    for start in range(0, len(cell), step):
        part = slice(start, start + step)
        yield Dealt(cell[part], values[:, part], None if weights is None else weights[part])
