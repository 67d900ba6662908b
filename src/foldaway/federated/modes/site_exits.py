"""A site's histograms of exits: at which times it tells how many left, as they are sent and as they are taken in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foldaway.errors import MessageError
from foldaway.federated.messages import packed, unpacked
from foldaway.federated.modes.site_groups import regrouped, site_groups
from foldaway.inference.strata import over_strata
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies import Grouped, grouped_of
from foldaway.tallies.histogram import Histogram
from foldaway.trial import Trial


def sent(trial: Trial, before: Sequence[bytes] = ()) -> list[bytes]:
    """What a site sends for each histogram, in place of exits by message, arm (of a stratum) and bin."""
    plan, found = trial.plan, []
    for place, histogram in enumerate(_kept(trial)):
        groups, number = histogram.counts.shape[1:]
        counts = histogram.counts.reshape(-1, len(plan.arms), groups, number)  # by stratum, if there are some
        then = unpacked(before[place], len(before[place]) // 8) if before else np.empty(0)
        then = then.reshape(-1, *counts.shape[:2], number)
        further = counts.sum(axis=(2, 3)) - _units(trial, place).reshape(counts.shape[:2])
        told = [told_exits(each, then[:, s], plan.privacy.smallest_cell, further[s]) for s, each in enumerate(counts)]
        found.append(packed(regrouped(np.concatenate(told), site_groups(trial, groups))))
    return found


def remembered(plan: Plan, exits: Sequence[bytes]) -> list[bytes]:
    """For each histogram that a site has sent, the exits by arm (of a stratum) and bin."""
    return [
        packed(unpacked(each, empty.counts.size).reshape(empty.counts.shape).sum(axis=1))
        for each, empty in zip(exits, _kept(Trial(plan)), strict=True)
    ]


def received(site: Trial, exits: Sequence[bytes], most: Floats) -> Grouped:
    """A site's tallies with its histograms, if as many have left at their times as must have, and no more than are.

    Raises:
        MessageError: They have not.
    """
    plan, held, empty = site.plan, grouped_of(site.tallies), _kept(site)
    if len(exits) != len(empty):
        raise MessageError("the message has other histograms than the plan.")
    taken = []
    for data, histogram in zip(exits, empty, strict=True):
        counts = unpacked(data, histogram.counts.size).reshape(histogram.counts.shape)
        by_arm = counts.sum(axis=1).reshape(-1, len(plan.arms), histogram.shape.bins)
        if np.any(counts < 0) or np.any(counts != np.floor(counts)) or np.any(by_arm.sum(axis=(0, 2)) > most):
            raise MessageError("the message's counts of exits do not fit its records.")
        for stratum in by_arm:
            left = stratum.reshape(len(stratum), -1, 2).sum(axis=-1)
            if np.any(left[stratum.any(axis=-1)][:, left.any(axis=0)] < plan.privacy.smallest_cell):
                raise MessageError("the message has exits at times between which fewer than `smallest_cell` left.")
        taken.append(replace(histogram, counts=counts))
    if held.strata is None:
        return replace(held, histograms=tuple(taken))
    whole = (_of_all_strata(plan, *pair) for pair in zip(taken, held.histograms, strict=True))
    return replace(held, histograms=tuple(whole), strata=replace(held.strata, histograms=tuple(taken)))


def _kept(trial: Trial) -> tuple[Histogram, ...]:
    """The histograms that sites send, or where the plan has strata, those by stratum."""
    held = grouped_of(trial.tallies)
    return held.histograms if held.strata is None else held.strata.histograms


def _units(trial: Trial, place: int) -> Floats:
    """How many units have an exit of one of the histograms, by stratum and arm side by side."""
    plan, seen = trial.plan, trial.seen
    outcome = next(each for each in plan.outcomes if each.binning == plan.bins[place])
    value = plan.places(outcome)[0]
    first = next(places[0] for places in plan.present_together if value in places) - len(plan.values)
    row = 1 + seen.values.index(first) if first in seen.values else 0
    return seen.by_group(1)[row, :, 0].astype(np.float64)


def _of_all_strata(plan: Plan, exits: Histogram, whole: Histogram) -> Histogram:
    """Exits by stratum added to the histogram of all, in which they weigh 1/π. It has as many groups, or more."""
    counts = whole.counts.copy()
    counts[:, : exits.shape.groups] += over_strata(exits.counts, 1 / plan.strata_shares)
    return replace(whole, counts=counts)


def told_exits(counts: Floats, before: Floats, least: Floats | int, further: Floats | float = 0.0) -> Floats:
    """Exits by arm, group and bin, moved to the next of the times between which enough units of every arm have left.

    Enough have also left there that were not in what was sent before, at any time: whoever has two of a site's messages
    sees their difference.

    Args:
        counts: As they are: two bins for each time, without and with the event.
        before: Those sent before, by message, arm and bin; of no messages if none were.
        least: How many are enough.
        further: How many exits of each arm are not their unit's first: so many more must have left.
    """
    by_time = counts.reshape(*counts.shape[:2], -1, 2)
    now, then = by_time.sum(axis=(1, 3)), before[..., ::2] + before[..., 1::2]
    arms = now.any(axis=-1)
    least = least + np.broadcast_to(further, len(now))[arms]
    gone = np.concatenate([now[None], now - then])[:, arms]  # since the time before: all, and more than in each message
    ends, between, left = list[int](), list[Floats](), np.zeros(gone.shape[:2])
    for time in range(now.shape[-1]):
        left = left + gone[..., time]
        if (left >= least).all():
            ends.append(time)
            between.append(left)
            left = np.zeros_like(left)
    if left.any():  # those left over at the end leave together with so many before them that they are enough
        while ends and not (left >= least).all():
            ends.pop()
            left = left + between.pop()
        if (left >= least).all():
            ends.append(int(np.flatnonzero(now.any(axis=0))[-1]))
    if not ends:
        return np.zeros_like(counts)
    told = np.zeros_like(by_time)
    moved = np.asarray(ends)[np.searchsorted(ends, np.arange(ends[-1] + 1))]
    np.add.at(told.swapaxes(0, 2), moved, by_time[:, :, : ends[-1] + 1].swapaxes(0, 2))
    return told.reshape(counts.shape)
