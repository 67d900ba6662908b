"""Survival outcomes: restricted means, and the share without the event by a time, from the histogram of exits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from foldaway.inference.jackknife import group_doubt, jackknifed
from foldaway.inference.levels import Levels, over
from foldaway.inference.reading.source import Source
from foldaway.inference.survival import Exited, area, area_error, curve, curve_error
from foldaway.numerics.block import Floats
from foldaway.plan import Survival
from foldaway.tallies.histogram import Histogram

_NOBODY_LEFT = "in an arm, nobody is followed as long as this outcome asks for: choose an earlier time."


def survival_levels(source: Source) -> Levels:
    """The arms' restricted means, or the shares without the event by a time; where an arm's cannot be told, why."""
    outcome, histogram = source.outcome, source.histogram
    assert isinstance(outcome, Survival)
    assert histogram is not None
    exits = Exited.of(histogram.counts)
    levels = levels_from(outcome, exits, squares_of(histogram), by_group=source.by_group)
    n = source.sums.counts(source.places[0]).sum(axis=1)
    whole = exits.total()
    followed = (whole.at_risk[..., outcome.last] > 0) | (curve(whole)[..., outcome.last] == 0)
    why = tuple("" if there or not records else _NOBODY_LEFT for there, records in zip(followed, n, strict=True))
    return levels._replace(n=n, why=why if any(why) else ())


def levels_from(outcome: Survival, exits: Exited, squares: Exited | None, *, by_group: bool) -> Levels:
    """The arms' levels, from exits by arm, group and bin; of independent ones with weights, also squares.

    An error is known about as well as there are events, or groups of units that have some.
    """
    ends, last = outcome.binning.ends, outcome.last
    read: Callable[[Floats], Floats] = (lambda found: found[..., last]) if outcome.at else partial(area, ends=ends)
    whole = exits.total()
    survival = curve(whole)
    value = read(survival)
    if by_group:
        levels = jackknifed(value, read(curve(exits.left_out())).T, exits.every.sum(axis=-1).T)
        return levels._replace(doubt=np.nan_to_num(group_doubt(exits.events.sum(axis=-1).T)))
    if outcome.at:
        variance = curve_error(whole, survival, squares)[..., last] * value**2
    else:
        variance = area_error(whole, survival, ends, squares)
    own = np.eye(len(value))
    doubt = np.nan_to_num(over(1.0, effective(whole, squares))) * own
    return Levels(value, variance[:, None] * own, doubt, whole.every.sum(axis=-1))


def events_by(outcome: Survival, histogram: Histogram) -> Floats:
    """By arm and group, the weight of events as far as the outcome follows them."""
    events: Floats = Exited.of(histogram.counts).events[..., : outcome.last + 1].sum(axis=-1)
    return events


def squares_of(histogram: Histogram) -> Exited | None:
    """Sums of squared weights by arm and bin, of independent exits that have weights."""
    return None if histogram.squares is None else Exited.of(histogram.squares)


def effective(exits: Exited, squares: Exited | None) -> Floats:
    """By arm, how many events of equal weight the events are worth: errors are known as well as there are events."""
    events = exits.events.sum(axis=-1)
    return events if squares is None else np.nan_to_num(over(events**2, squares.events.sum(axis=-1)))
