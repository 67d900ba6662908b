"""Mode sums: a device draws a group at random and sends sums; the coordinator keeps sums by arm and group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.effects.reading import effects_of
from foldaway.errors import MessageError, StateError, many
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
from foldaway.federated.replies.published import Published
from foldaway.keeping.secret import Secret
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.faults import Faults
from foldaway.tallies import grouped_of
from foldaway.tallies.predictor import predictor_of
from foldaway.tallies.sums import Sums
from foldaway.trial import Trial


class SumsByGroup(OneRound, SiteMode):
    """A device keeps a count and sums: enough for means, adjusted by the plan's coefficients."""

    name = "sums"
    reports = GroupSums

    def from_site(self, trial: Trial) -> bytes:
        """Counts and sums by arm and group; groups were dealt under a key of the site's own, which stays there.

        Groups are added until each that has units of an arm has `smallest_cell` of them, so that no unit's sums leave
        alone, and so for units that have an outcome which may be missing; how many of these have one that is not zero
        is not asked, since no rule may depend on values.
        """
        places, cells = site_groups(trial), _cells(trial)
        sums = cells.regrouped(len(places))

        def spread(counts: Floats) -> bytes:
            over = np.zeros((cells.shape.arms, cells.shape.groups, *counts.shape[2:]))
            over[:, places] = counts
            return packed(over)

        totals = np.stack([sums.totals(column) for column in range(sums.shape.columns)], axis=-1)
        dropped, baseline = trial.dropped, site_baseline.sent(trial)
        message = SiteSums(
            list(units_of(trial).values()),
            spread(sums.records),
            spread(totals),
            msgspec.UNSET if sums.present is None else spread(sums.present),
            msgspec.UNSET if baseline is None else baseline,
            dict(dropped.records),
            list(dropped),
        )
        return encoded(message)

    def site(self, share: ServerShare, data: bytes) -> ServerShare:
        """The sums, if as many units and records as they are said to be of can have them.

        Units of different sites, and of devices, are different units: their groups add up whatever the keys were.
        """
        message, plan = decoded(data, SiteSums, most=None), share.plan
        arms, columns = len(plan.arms), _columns(plan)
        here = _cells(share.trial).shape
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
        site.trial.dropped = Faults(message.dropped.items(), message.faults)
        share.require_dropped(site.trial.dropped, int(most.sum()))
        baseline = site_baseline.received(plan, message.baseline or None, most, message.units)
        site.trial.tallies = replace(grouped_of(site.trial.tallies), baseline=baseline)
        arm, group = np.nonzero(there)
        site.trial.fold_totals(arm, group, records[there].astype(np.int64), sums[there], present[there])
        return site

    def numbers(self, plan: Plan, message: GroupSums) -> Floats:
        """The sums."""
        return unpacked(message.sums, _columns(plan))

    def check(self, share: ServerShare, message: GroupSums, published: Published | None) -> Floats:
        """The sums, if the plan has the message's arm, group and columns."""
        share.require_few(message)
        if message.group >= share.plan.groups:
            raise MessageError("the message names a group that the plan has not.")
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
            share.trial.fold_totals(codes, groups, counts, np.stack(values))

    def results(
        self, share: ServerShare, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, None]:
        """Those of sums by group, with a note on who is missing from them."""
        trial, units = share.trial, dict(zip(share.plan.arms, share.devices, strict=True))
        tallies, plan = grouped_of(trial.tallies), share.plan
        notes = notes_on(share, devices, door)
        if plan.release is not None:  # counts of devices are exact, and a release tells nothing that is
            return effects_of(plan, trial.dropped, door, sums=tallies), None
        return effects_of(plan, trial.dropped, door, sums=tallies, units=units, notes=notes), None

    def described(self, plan: Plan) -> str:
        """The group, the count and the sums."""
        (message,) = self.longest(plan)
        sums, size = many(_columns(plan), "sum"), many(len(encoded(message)), "byte")
        least = many(plan.privacy.smallest_cell, "unit")
        by = "arm" if plan.strata is None else "stratum, arm"
        sent = f"counts and sums by {by} and group, of at least {least} each,"
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


def site_groups(trial: Trial) -> NDArray[np.int64]:
    """Which of the plan's groups a site's units are dealt into, by the lowest bits of their hashes.

    A small site has units for a few groups only. Its key says where these begin, so that sites fill different ones.
    """
    sums = _cells(trial)
    most = groups = sums.shape.groups
    units = trial.seen.by_group(groups)
    if np.any((sums.records > 0) > (units[0] > 0)):
        raise StateError("the units of these records were not counted, so nothing is sent: fold them with fold_site.")
    while groups > 1 and np.any((units > 0) & (units < trial.plan.privacy.smallest_cell)):
        groups //= 2
        units = units.reshape(*units.shape[:2], 2, groups).sum(axis=2)
    step = most // groups
    return (Secret(trial.key).offset(step) + step * np.arange(groups)).astype(np.int64)


def _cells(trial: Trial) -> Sums:
    """What sites send: sums by arm and group, or, where the plan has strata, by stratum, arm and group."""
    held = grouped_of(trial.tallies)
    return held.plain() if held.strata is None else held.strata.plain()


def _columns(plan: Plan) -> int:
    """How many sums there are: of each outcome and, with coefficients, of its ỹ."""
    return len(plan.values) * (1 if plan.coefficients is None else 2)
