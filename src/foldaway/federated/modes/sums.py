"""Mode sums: a device draws a group at random and sends sums; the coordinator keeps sums by arm and group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.effects.reading import effects_of
from foldaway.errors import MessageError, many
from foldaway.federated.messages import (
    MOST_RECORDS,
    GroupSums,
    SiteSums,
    decoded,
    encoded,
    packed,
    unpacked,
)
from foldaway.federated.modes import site_baseline
from foldaway.federated.modes.mode import SiteMode, longest_arm
from foldaway.federated.modes.one_round import OneRound, notes_on, site_sentence
from foldaway.federated.modes.share import Devices, ServerShare, units_of
from foldaway.federated.modes.site_groups import regrouped, require_counted, site_groups, told_exits
from foldaway.federated.replies.published import Published
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.faults import Faults
from foldaway.tallies import Grouped, Held, grouped_of
from foldaway.tallies.predictor import predictor_of
from foldaway.tallies.segment import SegmentTallies, side_by_side_of
from foldaway.tallies.sums import Sums
from foldaway.trial import Trial

DEVICES = "(devices)"
"""What all devices together are called among sites."""


class SumsByGroup(OneRound, SiteMode):
    """A device keeps a count and sums: enough for means, adjusted by the plan's coefficients."""

    name = "sums"
    reports = GroupSums

    def from_site(self, trial: Trial, exits_before: Sequence[bytes] = ()) -> bytes:
        """Counts and sums by arm and group; groups were dealt under a key of the site's own, which stays there.

        Groups are joined until each that has units of an arm has `smallest_cell` of them, so that no unit's sums leave
        alone, and so for units that have an outcome which may be missing; how many of these have one that is not zero
        is not asked, since no rule may depend on values.
        """
        plan, sums, dropped = trial.plan, _cells(trial), trial.dropped
        require_counted(trial, sums.records)
        places = site_groups(trial, sums.shape.groups)
        totals = np.stack([sums.totals(column) for column in range(sums.shape.columns)], axis=-1)
        exits: list[bytes] = []
        for bins, histogram in zip(plan.bins, grouped_of(trial.tallies).histograms, strict=True):
            arms, groups, _ = histogram.counts.shape
            sent = exits_before[len(exits)] if exits_before else b""
            before = unpacked(sent, len(sent) // 8).reshape(-1, arms, bins.number)
            told = told_exits(histogram.counts, before, plan.privacy.smallest_cell)
            exits.append(packed(regrouped(told, site_groups(trial, groups))))
        baseline = site_baseline.sent(trial)
        message = SiteSums(
            list(units_of(trial).values()),
            packed(regrouped(sums.records, places)),
            packed(regrouped(totals, places)),
            msgspec.UNSET if sums.present is None else packed(regrouped(sums.present, places)),
            msgspec.UNSET if baseline is None else baseline,
            dict(dropped.records),
            list(dropped),
            exits,
        )
        return encoded(message)

    def exits_sent(self, plan: Plan, data: bytes) -> list[bytes]:
        """For each of the plan's histograms, the exits by arm and bin in what a site has sent."""
        exits, arms = decoded(data, SiteSums, most=None).exits, len(plan.arms)
        by_bin = (unpacked(each, len(each) // 8) for each in exits)
        return [
            packed(each.reshape(arms, -1, bins.number).sum(axis=1))
            for each, bins in zip(by_bin, plan.bins, strict=True)
        ]

    def site(self, share: ServerShare, data: bytes) -> ServerShare:
        """The sums, if as many units and records as they are said to be of can have them.

        Units of different sites, and of devices, are different units: their groups add up whatever the keys were.
        """
        message, plan = decoded(data, SiteSums, most=None), share.plan
        arms, columns = len(plan.arms), _columns(plan)
        here = _cells(share.own).shape
        records = unpacked(message.records, here.arms * here.groups).reshape(here.arms, here.groups)
        sums = unpacked(message.sums, records.size * columns).reshape(*records.shape, columns)
        if (message.present is msgspec.UNSET) == plan.lacking:
            raise MessageError("the message must count who has each outcome if, and only if, these may be missing.")
        present = np.repeat(records[..., None], len(plan.values), axis=-1)
        if message.present is not msgspec.UNSET:
            present = unpacked(message.present, present.size).reshape(present.shape)
        by_column = np.tile(present, columns // len(plan.values))
        there = records > 0
        most, filled = (each.sum(axis=1).reshape(-1, arms).sum(axis=0) for each in (records, there))
        counts = np.concatenate([records[..., None], present], axis=-1)
        if np.any(counts < 0) or np.any(counts != np.floor(counts)) or np.any(sums[by_column == 0]):
            raise MessageError("the message's counts of records do not fit its sums.")
        if np.any(present > records[..., None]) or np.any((present > 0) & (present < plan.privacy.smallest_cell)):
            raise MessageError(
                "the message's counts of outcomes do not fit its records, or the plan's `smallest_cell`."
            )
        if np.any(most > MOST_RECORDS):
            raise MessageError(f"the message claims more records of an arm than {MOST_RECORDS:,}, the limit.")
        units = np.array(message.units)
        if len(units) != arms or np.any(units > most):
            raise MessageError("the message's counts of units do not fit its records.")
        if np.any(units < plan.privacy.smallest_cell * filled):
            raise MessageError("the message has groups of fewer units than the plan's `smallest_cell`.")
        share.require_of_units(message.units, most.astype(int).tolist())
        with np.errstate(invalid="ignore"):  # where nobody has an outcome, there is no mean
            self._require_plausible(share, sums[there] / by_column[there])
        site = ServerShare(Trial(plan), devices=message.units, largest=most.astype(int).tolist())
        site.own.dropped = Faults(message.dropped.items(), message.faults)
        share.require_dropped(site.own.dropped, int(most.sum()))
        baseline = site_baseline.received(plan, message.baseline or None, most, message.units)
        site.own.tallies = replace(grouped_of(site.own.tallies), baseline=baseline)
        arm, group = np.nonzero(there)
        site.own.fold_totals(arm, group, records[there].astype(np.int64), sums[there], present[there])
        self._take_exits(site.own, message.exits, most)
        return site

    def _take_exits(self, site: Trial, exits: Sequence[bytes], most: Floats) -> None:
        """Add a site's histograms of exits, if as many have left at their times as must have, and no more than are."""
        held, least = grouped_of(site.tallies), site.plan.privacy.smallest_cell
        if len(exits) != len(held.histograms):
            raise MessageError("the message has other histograms than the plan.")
        taken = []
        for data, histogram in zip(exits, held.histograms, strict=True):
            counts = unpacked(data, histogram.counts.size).reshape(histogram.counts.shape)
            by_arm = counts.sum(axis=1)
            left = by_arm.reshape(len(by_arm), -1, 2).sum(axis=-1)
            if np.any(counts < 0) or np.any(counts != np.floor(counts)) or np.any(by_arm.sum(axis=-1) > most):
                raise MessageError("the message's counts of exits do not fit its records.")
            if np.any(left[by_arm.any(axis=-1)][:, left.any(axis=0)] < least):
                raise MessageError("the message has exits at times between which fewer than `smallest_cell` left.")
            taken.append(replace(histogram, counts=counts))
        site.tallies = replace(held, histograms=tuple(taken))

    def numbers(self, plan: Plan, message: GroupSums) -> Floats:
        """The sums."""
        return unpacked(message.sums, _columns(plan))

    def check(self, share: ServerShare, message: GroupSums, published: Published | None) -> Floats:
        """The sums, if the plan has the message's arm, group and columns."""
        share.require_few(message)
        share.require_group(message.group)
        sums = self.numbers(share.plan, message)
        self._require_plausible(share, sums / message.n)
        if share.plan.release is not None and (predictor := predictor_of(share.plan)) is not None:
            y, tilde = np.split(sums / message.n, 2)
            share.require_within(y - tilde, np.asarray(predictor.reach))
        return sums

    def _require_plausible(self, share: ServerShare, means: Floats) -> None:
        """Refuse means, by column, that are absurd, or beyond the plan's bounds."""
        share.require_usual(means**2)
        bounds = {o: ends for o, v in enumerate(share.plan.values) if (ends := v.bounds(share.plan.bounds)) is not None}
        share.require_within(means[..., list(bounds)], list(bounds.values()))

    def fold(
        self, share: ServerShare, messages: Sequence[GroupSums], values: Sequence[Floats], published: Published | None
    ) -> None:
        """Add them up by arm and group."""
        if messages:
            codes, counts = share.counted(messages)
            groups = np.array([message.group for message in messages], dtype=np.intp)
            share.own.fold_totals(codes, groups, counts, np.stack(values))

    def results(
        self, share: ServerShare, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, None]:
        """Those of sums by group, within sites where there are some, with a note on who is missing from them."""
        trial, plan = share.trial, share.plan
        units, tallies = dict(zip(plan.arms, share.devices, strict=True)), grouped_of(trial.tallies)
        notes = notes_on(share, devices, door)
        if plan.release is not None:  # counts of devices are exact, and a release tells nothing that is
            return effects_of(plan, trial.dropped, door, sums=tallies), None
        sites = side_by_side(share)
        return effects_of(plan, trial.dropped, door, sums=tallies, units=units, notes=notes, sites=sites), None

    def held(self, share: ServerShare) -> Held:
        """The sums of each site by themselves, where effects are compared within sites."""
        sites, whole = side_by_side(share), grouped_of(share.trial.tallies)
        return whole if sites is None else replace(sites.cells, baseline=whole.baseline)

    def described(self, plan: Plan) -> str:
        """The group, the count and the sums."""
        (message,) = self.longest(plan)
        sums, size = many(_columns(plan), "sum"), many(len(encoded(message)), "byte")
        least = many(plan.privacy.smallest_cell, "unit")
        by = "arm" if plan.strata is None else "stratum, arm"
        sent = f"counts and sums by {by} and group, of at least {least} each{_exits(plan, least)},"
        sent += " and counts, means and squares of the baseline by arm," if plan.baseline else ""
        site = "" if plan.unit is None else f"{site_sentence(plan, sent)} "
        if plan.sites_only:
            return f"no device takes part, only sites. {site.rstrip()}"
        return (
            f"a device draws one of {plan.groups:,} groups at random. It keeps a count and {sums}, and no "
            f"record. It sends them once, in at most {size}. {site}Where an arm's group has one device, the "
            f"coordinator keeps that device's sums: have several times {len(plan.arms) * plan.groups:,} devices, or "
            "a smaller `expected_units`."
        )

    def longest(self, plan: Plan) -> Sequence[GroupSums]:
        """The sums of as many records as a message may be of, in the last group."""
        return [GroupSums(bytes(16), longest_arm(plan), MOST_RECORDS, plan.groups - 1, bytes(8 * _columns(plan)))]


def side_by_side(share: ServerShare) -> SegmentTallies[Grouped] | None:
    """What each site has sent, as the levels of a segment; None where effects are not compared within sites."""
    plan = share.plan
    if not plan.within_sites or plan.federated is None:
        return None
    sites: dict[str, Grouped] = {}
    parts = [(sending.site, sending.share.own) for sending in share.sites.values()]
    for site, own in [*parts, *([(DEVICES, share.own)] if share.own.n else [])]:
        name, held = plan.federated.joined.get(site, site), grouped_of(own.tallies)
        sites[name] = sites[name] + held if name in sites else held
    return side_by_side_of(sites) if sites else None


def _cells(trial: Trial) -> Sums:
    """What sites send: sums by arm and group, or, where the plan has strata, by stratum, arm and group."""
    held = grouped_of(trial.tallies)
    return held.plain() if held.strata is None else held.strata.plain()


def _exits(plan: Plan, least: str) -> str:
    if not plan.bins:
        return ""
    return f", and exits by time where at least {least} of every arm have left since the time before"


def _columns(plan: Plan) -> int:
    """How many sums there are: of each outcome and, with coefficients, of its ỹ."""
    return len(plan.values) * (1 if plan.coefficients is None else 2)
