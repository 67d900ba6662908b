"""Into which groups a site deals its units: each has `smallest_cell` of them. It depends on counts, never on values."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.trial import Trial
from foldaway.trial.units import Seen

T = TypeVar("T", np.float64, np.int64)


def site_groups(trial: Trial, groups: int) -> NDArray[np.int64]:
    """For each of so many groups by the lowest bits of a unit's hash, the group in which the site sends its sums.

    Neighbours are joined until each group has `smallest_cell` units of every arm, and so in strata, and so of units
    that have an outcome which may be missing. A small site has few groups. Its key says where these begin, so that
    sites fill different ones.
    """
    return _spread(trial, _joined(trial.seen.by_group(groups), trial.plan.privacy.smallest_cell), groups)


def groups_within(trial: Trial, seen: Seen) -> NDArray[np.int64]:
    """The same for the levels of a segment. Each of their groups is made of whole groups of all records.

    Otherwise the difference between groups of levels and of all records could be of a few units.
    """
    groups, least = trial.plan.groups, trial.plan.privacy.smallest_cell
    whole = _joined(trial.seen.by_group(groups), least)
    units = regrouped(seen.by_group(groups).reshape(-1, groups), whole)[:, : int(whole[-1]) + 1]
    return _spread(trial, _joined(units, least)[whole], groups)


def _joined(units: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """For each group the one that it is joined to, by units in all rows that have some."""
    rows = units.reshape(-1, units.shape[-1])
    return neighbours(rows[rows.any(axis=-1)], least)


def _spread(trial: Trial, place: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    filled = int(place[-1]) + 1
    return (Secret(trial.key).offset(groups) + place * groups // filled) % groups


def neighbours(units: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """For each group the one that it is joined to: each has so many units at the least, in each row of these counts.

    Example:
        >>> neighbours(np.array([[3, 0, 2, 1, 4], [1, 1, 5, 2, 2]]), least=2)
        array([0, 0, 1, 2, 2])
    """
    place, joined, held = np.zeros(units.shape[1], dtype=np.int64), 0, np.zeros(len(units), dtype=np.int64)
    for group in range(units.shape[1]):
        place[group] = joined
        held += units[:, group]
        if (held >= least).all():
            joined, held = joined + 1, np.zeros_like(held)
    return np.minimum(place, max(joined - 1, 0))  # the last ones, which are too few, join those before


def require_counted(trial: Trial, records: Floats) -> None:
    """Refuse records by arm and group whose units were not counted."""
    if np.any((records > 0) > (trial.seen.by_group(records.shape[-1])[0] > 0)):
        raise StateError("the units of these records were not counted, so nothing is sent: fold them with fold_site.")


def regrouped(counts: NDArray[T], places: NDArray[np.int64]) -> NDArray[T]:
    """Counts by arm and group, and what follows, dealt into these groups instead."""
    dealt = np.zeros_like(counts)
    np.add.at(dealt.swapaxes(0, 1), places, counts.swapaxes(0, 1))
    return dealt
