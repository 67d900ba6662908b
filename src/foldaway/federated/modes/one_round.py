"""Modes of one round, such as one-message and delta: a device keeps what its records come to, and sends it once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.effects.from_moments import MomentsRead as Reading
from foldaway.effects.reading import effects_of
from foldaway.errors import MessageError, StateError, instead_of, many
from foldaway.federated.messages import (
    MOST_RECORDS,
    Counted,
    DeviceMoments,
    DeviceSums,
    encoded,
)
from foldaway.federated.modes.mode import Mode, SentBefore, SiteMode, longest_arm
from foldaway.federated.modes.share import Devices, ServerShare, units_of
from foldaway.federated.replies.published import Published
from foldaway.keeping.cohort import least_to_publish
from foldaway.plan import Plan
from foldaway.tallies import arms_of
from foldaway.tallies.moments import UNITS
from foldaway.trial import Trial


class OneRound(Mode):
    """A mode in which a device keeps only what its records come to, and sends that once."""

    reports: ClassVar[type[Counted]]

    def results(
        self, share: ServerShare, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, None]:
        """Those of an analysis of clusters, with a note on who is missing from it."""
        moments = Reading(share.plan, arms_of(share.trial.tallies))
        notes = notes_on(share, devices, door)
        return effects_of(share.plan, share.trial.dropped, door, moments=moments, notes=notes), None


class OneMessage(OneRound, SiteMode):
    """A device keeps the factor of its records, which says all that clustered errors need; sites send tallies."""

    name = "one-message"
    reports = DeviceMoments

    def longest(self, plan: Plan) -> Sequence[DeviceMoments]:
        """The factor of as many records as a message may be of."""
        return [DeviceMoments.of(bytes(16), longest_arm(plan), MOST_RECORDS, np.zeros((len(plan.columns),) * 2))]

    def from_site(self, trial: Trial, before: SentBefore | None = None) -> bytes:
        """The state, in which every unit is a cluster."""
        return trial.dumps()

    def site(self, share: ServerShare, data: bytes) -> ServerShare:
        """The state again; units are counted in it."""
        with instead_of(StateError, lambda error: MessageError(f"the body is not the tallies of a site: {error}")):
            trial = Trial.loads(data, share.plan)
        if any(arm.tallies[UNITS].n != arm.n for arm in arms_of(trial.tallies)):
            raise MessageError("the tallies hold records without a unit; every record needs one.")
        units, records = list(units_of(trial).values()), list(trial.counts.values())
        share.require_of_units(units, records)
        share.require_dropped(trial.dropped, trial.n)
        return ServerShare(trial, devices=units, largest=records)

    def described(self, plan: Plan) -> str:
        """The factor."""
        (message,) = self.longest(plan)
        numbers = many(len(plan.columns) * (len(plan.columns) + 1) // 2, "number")
        device = (
            f"a device keeps the triangular factor of its records, {numbers}, and no record. It sends that once, in at "
            f"most {many(len(encoded(message)), 'byte')}."
        )
        return device if plan.unit is None else f"{device} {site_sentence(plan, 'tallies')}"


class Delta(OneRound):
    """A device keeps sums of its outcomes: enough for a difference of means, by the paper's delta method, alone."""

    name = "delta"
    reports = DeviceSums

    def longest(self, plan: Plan) -> Sequence[DeviceSums]:
        """The sums of as many records as a message may be of."""
        return [DeviceSums(bytes(16), longest_arm(plan), MOST_RECORDS, bytes(8 * len(plan.values)))]

    def described(self, plan: Plan) -> str:
        """The count and the sums."""
        (message,) = self.longest(plan)
        sums, size = many(len(plan.values), "sum"), many(len(encoded(message)), "byte")
        return f"a device keeps a count and {sums}, and no record. It sends them once, in at most {size}."


def site_sentence(plan: Plan, what: str) -> str:
    """What a site sends, and when."""
    least = many(least_to_publish(plan.privacy), "unit")
    return (
        f"A site sends {what} only if every arm that has units at the site has at least {least}; and again, in place "
        "of these, only if every arm has as many more."
    )


def notes_on(share: ServerShare, devices: Devices, door: Door) -> Iterator[str]:
    """Who is in the effects, and who is not, with counts as they leave by the door.

    And how much of an arm comes from a single device or site.
    """
    enrolled, missing = sum(devices.enrolled.values()), sum(devices.missing.values())

    def told(reported: int, of: int) -> str:
        return f"{door.devices(reported):,} of {door.devices(of):,}"

    by_arm = ", ".join(f"{arm} {told(devices.reported[arm], n)}" for arm, n in devices.enrolled.items())
    who, one = "Devices that have reported", "device"
    if share.plan.unit is not None:
        who, one = "Units that have reported, at sites or on devices", "device or site"
    if share.plan.sites_only:
        who, one = "Units that sites have reported", "site"
    yield f"{who}: {told(enrolled - missing, enrolled)} enrolled ({by_arm}).{door.caveat}"
    if devices.sites:
        units = ", ".join(f"{site} {many(door.devices(n), 'unit')}" for site, n in devices.sites.items())
        yield f"Sites that have reported: {units}."
    if missing:
        yield (
            f"{many(door.devices(missing), 'missing report')}: their records are in no effect. If who "
            "reports depends on the arm or on the outcomes, the effects are biased."
        )
    if withdrawn := sum(devices.withdrawn.values()):
        yield f"Of the missing reports, {door.devices(withdrawn):,} had been counted and were withdrawn."
    shares = [most / n for most, n in zip(share.largest, share.trial.counts.values(), strict=True) if n]
    if largest := max(shares, default=0.0):
        yield f"The largest share of an arm's records that came from one {one}: {float(f'{100 * largest:.2g}'):g} %."
