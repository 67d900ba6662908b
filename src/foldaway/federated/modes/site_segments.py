"""Segments at a site: which levels it tells, and their counts and sums by arm and group.

Whoever has the sums of all records and of some levels can subtract them. So the levels that are not told have enough
units together; groups of levels are made of whole groups of all records; and both hold for the difference from what was
sent before. All of this depends on counts, and never on values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import MessageError
from foldaway.federated.messages import SiteCells
from foldaway.federated.modes import site_cells
from foldaway.federated.modes.site_cells import TakenCells
from foldaway.federated.modes.site_groups import groups_within
from foldaway.numerics.block import Floats
from foldaway.tallies import Grouped, grouped_of
from foldaway.tallies.lean import Lean
from foldaway.tallies.segment import SegmentTallies
from foldaway.trial import Trial
from foldaway.trial.units import Seen

# An arm that is in a single group of a stratum has no error, and neither has then the segment.
_LEAST_GROUPS = 2

_OFF = 1e-6


def counted(trial: Trial) -> list[list[int]]:
    """For each segment the units by level and arm: of all, then of those that have each outcome that may be missing."""
    return [seen.by_group(1).reshape(-1).tolist() for seen in trial.seen.segments]


def sent(trial: Trial, before: Sequence[Sequence[int]] = ()) -> list[SiteCells]:
    """What a site sends of each segment, in place of what it sent when it had counted these units."""
    plan, found = trial.plan, []
    for place, (segment, seen) in enumerate(zip(grouped_of(trial.tallies).segments, trial.seen.segments, strict=True)):
        told = told_levels(trial, seen, before[place] if before else None)
        cells = [cell if each else -1 for cell, each in enumerate(np.repeat(told, len(plan.arms)).tolist())]
        sums = segment.cells.of_arms(cells).plain()  # a level that is not told has no records
        found.append(site_cells.sent(sums, groups_within(trial, seen.with_rest(told))))
    return found


def told_levels(trial: Trial, seen: Seen, before: Sequence[int] | None = None) -> NDArray[np.bool_]:
    """Which levels of a segment a site tells: each has enough units of every arm, and so have all others together.

    Arms without any unit do not count, nor do outcomes that nobody has. There are at least two groups, since an arm in
    a single one has no error.

    Args:
        trial: The site's records.
        seen: The units, by level.
        before: The most units that there ever were when the site sent, as `counted` has them.
    """
    levels, least = seen.arms // len(trial.plan.arms), trial.plan.privacy.smallest_cell
    now = _by_level(seen, seen.by_group(1), levels)
    then = np.zeros_like(now) if before is None else _by_level(seen, before, levels)

    def enough(units: NDArray[np.int64], earlier: NDArray[np.int64]) -> bool:
        return bool(np.all((units == 0) | (np.minimum(units, units - earlier) >= least)))

    told = np.array([bool(units.any()) and enough(units, earlier) for units, earlier in zip(now, then, strict=True)])
    while told.any():
        others = seen.with_rest(told)
        rest = _by_level(others, others.by_group(1), int(told.sum()) + 1)[-1]
        if enough(rest, then[~told].sum(axis=0)) and len(np.unique(groups_within(trial, others))) >= _LEAST_GROUPS:
            break
        told[min(np.flatnonzero(told), key=lambda level: now[level].sum())] = False
    return told


def received(
    site: Trial, messages: Sequence[SiteCells], whole: TakenCells, require_plausible: Callable[[Floats], None]
) -> tuple[SegmentTallies[Grouped], ...]:
    """What a site has sent, whose sums of all records are these, as the segments of its tallies.

    Raises:
        MessageError: It does not fit the plan, or the sums of all records.
    """
    plan, found = site.plan, []
    if len(messages) != len(plan.segments):
        raise MessageError("the message has other segments than the plan.")
    for segment, message in zip(grouped_of(site.tallies).segments, messages, strict=True):
        empty = segment.cells
        assert isinstance(empty, Lean)
        cells = site_cells.received(plan, message, empty.sums.shape)
        require_plausible(cells.means)
        levels, everyone = (
            [each.reshape(-1, len(plan.arms), *each.shape[1:]).sum(axis=(0, 2)) for each in (sent.records, sent.sums)]
            for sent in (cells, whole)
        )
        if np.any(levels[0] > everyone[0]):
            raise MessageError("the message's levels have more records than there are.")
        complete = levels[0] == everyone[0]
        if not np.allclose(levels[1][complete], everyone[1][complete], rtol=_OFF, atol=_OFF * np.abs(whole.sums).sum()):
            raise MessageError("the sums of the message's levels do not add up to those of all records.")
        found.append(SegmentTallies[Grouped](segment.levels, empty.fold_totals(*cells.rows)))
    return tuple(found)


def notes(tallies: Grouped) -> list[str]:
    """That levels have fewer records than there are, if they have."""
    parts = zip(tallies.plan.segments, tallies.segments, strict=True)
    if not (short := [repr(column) for column, segment in parts if segment.cells.n < tallies.n]):
        return []
    return [
        f"The values of {' and '.join(short)} add up to fewer records than there are. A site leaves out a value that "
        f"fewer than {tallies.plan.privacy.smallest_cell:,} of its units in an arm have. If that value could be worked "
        "out from the others, it leaves out the next smallest too."
    ]


def _by_level(seen: Seen, counts: ArrayLike, levels: int) -> NDArray[np.int64]:
    """Counts of units by level: in a row those of each arm, and of each outcome that may be missing."""
    by_value = np.reshape(counts, (1 + len(seen.values), levels, -1))
    return np.moveaxis(by_value, 1, 0).reshape(levels, -1)
