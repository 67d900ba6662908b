"""Mode sums: a device draws a group at random and sends sums; the coordinator keeps sums by arm and group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from foldaway.effects import Effects
from foldaway.effects.by_segment import SiteTallies, side_by_side
from foldaway.effects.door import TOLD, Door
from foldaway.effects.reading import effects_of
from foldaway.errors import MessageError, many
from foldaway.federated.messages import (
    MOST_RECORDS,
    GroupSums,
    SiteSums,
    decoded,
    encoded,
    unpacked,
)
from foldaway.federated.modes import site_baseline, site_cells, site_exits, site_segments
from foldaway.federated.modes.mode import SentBefore, SiteMode, longest_arm
from foldaway.federated.modes.one_round import OneRound, notes_on, site_sentence
from foldaway.federated.modes.share import Devices, ServerShare, units_of
from foldaway.federated.modes.site_groups import require_counted, site_groups
from foldaway.federated.replies.published import Published
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.faults import Faults
from foldaway.tallies import Held, grouped_of
from foldaway.tallies.predictor import predictor_of
from foldaway.tallies.sums import Sums
from foldaway.trial import Trial

DEVICES = "(devices)"
"""What all devices together are called among sites."""


class SumsByGroup(OneRound, SiteMode):
    """A device keeps a count and sums: enough for means, adjusted by the plan's coefficients."""

    name = "sums"
    reports = GroupSums

    def from_site(self, trial: Trial, before: SentBefore | None = None) -> bytes:
        """Counts and sums by arm and group; groups were dealt under a key of the site's own, which stays there.

        Groups are joined until each that has units of an arm has `smallest_cell` of them, so that no unit's sums leave
        alone, and so for units that have an outcome which may be missing; how many of these have one that is not zero
        is not asked, since no rule may depend on values.
        """
        sums, dropped = _cells(trial), trial.dropped
        require_counted(trial, sums.records)
        cells = site_cells.sent(sums, site_groups(trial, sums.shape.groups))
        baseline = site_baseline.sent(trial)
        message = SiteSums(
            units=list(units_of(trial).values()),
            records=cells.records,
            sums=cells.sums,
            present=cells.present,
            segments=site_segments.sent(trial, () if before is None else before.levels),
            baseline=msgspec.UNSET if baseline is None else baseline,
            levels=site_baseline.levels(trial),
            dropped=dict(dropped.records),
            faults=list(dropped),
            exits=site_exits.sent(trial, () if before is None else before.exits),
        )
        return encoded(message)

    def exits_told(self, trial: Trial, before: SentBefore | None) -> list[bytes]:
        """For each of the plan's histograms, the exits that a site tells, by arm (of a stratum) and bin."""
        return site_exits.remembered(trial, () if before is None else before.exits)

    def site(self, share: ServerShare, data: bytes) -> ServerShare:
        """The sums, if as many units and records as they are said to be of can have them.

        Units of different sites, and of devices, are different units: their groups add up whatever the keys were.
        """
        message, plan = decoded(data, SiteSums, most=None), share.plan
        cells = site_cells.received(plan, message, _cells(share.own).shape)
        most, filled = (
            each.sum(axis=1).reshape(-1, len(plan.arms)).sum(axis=0) for each in (cells.records, cells.records > 0)
        )
        if np.any(most > MOST_RECORDS):
            raise MessageError(f"the message claims more records of an arm than {MOST_RECORDS:,}, the limit.")
        units = np.array(message.units)
        if len(units) != len(plan.arms) or np.any(units > most):
            raise MessageError("the message's counts of units do not fit its records.")
        if np.any(units < plan.privacy.smallest_cell * filled):
            raise MessageError("the message has groups of fewer units than the plan's `smallest_cell`.")
        share.require_of_units(message.units, most.astype(int).tolist())
        self._require_plausible(share, cells.means)
        site = ServerShare(Trial(plan), devices=message.units, largest=most.astype(int).tolist())
        site.own.dropped = Faults(message.dropped.items(), message.faults)
        share.require_dropped(site.own.dropped, int(most.sum()))
        baseline = site_baseline.received(share, message, most)
        segments = site_segments.received(site.own, message.segments, cells, partial(self._require_plausible, share))
        site.own.tallies = replace(grouped_of(site.own.tallies), baseline=baseline, segments=segments)
        site.own.fold_totals(*cells.rows)
        site.own.tallies = site_exits.received(site.own, message.exits, most)
        return site

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
        notes = [*notes_on(share, devices, door), *site_segments.notes(tallies)]
        if plan.release is not None:  # counts of devices are exact, and a release tells nothing that is
            return effects_of(plan, trial.dropped, door, sums=tallies), None
        sites = by_site(share)
        return effects_of(plan, trial.dropped, door, sums=tallies, units=units, notes=notes, sites=sites), None

    def held(self, share: ServerShare) -> Held:
        """The sums of each site by themselves, where effects are compared within sites."""
        sites, whole = by_site(share), grouped_of(share.trial.tallies)
        return replace(side_by_side(sites).cells, baseline=whole.baseline) if sites else whole

    def described(self, plan: Plan) -> str:
        """The group, the count and the sums."""
        (message,) = self.longest(plan)
        sums, size = many(_columns(plan), "sum"), many(len(encoded(message)), "byte")
        least = many(plan.privacy.smallest_cell, "unit")
        by = "arm" if plan.strata is None else "stratum, arm"
        sent = f"counts and sums by {by} and group, of at least {least} each{_exits(plan, least)},"
        sent += f" the same by {' and by '.join(plan.segments)} where every arm has as many," if plan.segments else ""
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


def by_site(share: ServerShare) -> dict[str, SiteTallies]:
    """What each site has sent; nothing where effects are not compared within sites."""
    plan = share.plan
    if not plan.within_sites or plan.federated is None:
        return {}
    sites: dict[str, SiteTallies] = {}
    parts = [(sending.site, sending.share) for sending in share.sites.values()]
    for site, sent in [*parts, *([(DEVICES, share.without_sites)] if share.own.n else [])]:
        name, here = plan.federated.joined.get(site, site), SiteTallies(grouped_of(sent.own.tallies), sent.devices)
        if name in sites:
            units = [a + b for a, b in zip(sites[name].units, here.units, strict=True)]
            here = SiteTallies(sites[name].tallies + here.tallies, units)
        sites[name] = here
    return sites


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
