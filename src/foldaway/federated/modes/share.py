"""A coordinator's share of a federated trial: what has come from devices and sites, as tallies. No numbers, no network.

A site's tallies lie beside those of devices. So a site may send again, in place of what it sent before, and effects can
be compared within sites and shown by site.

While the trial is open, what devices send folds into its tallies. Once a mode with replies is ending, the arms
are frozen and published, and replies fold into sums. Shares of several servers add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import MessageError, StateError, many
from foldaway.federated.messages import Counted, DeviceMoments
from foldaway.federated.replies.published import Published
from foldaway.federated.replies.tally import Replies
from foldaway.federated.summands.summands import Summands
from foldaway.keeping.cohort import Newcomers, least_to_publish
from foldaway.keeping.state import pack, unpack
from foldaway.numerics.block import Floats
from foldaway.plan import Plan, Privacy
from foldaway.plan.vocabulary import MODES
from foldaway.records.faults import CLIPPED, NO_ARM, Faults, excess
from foldaway.trial import Trial

ROUNDING = 1e-6

# A column whose root mean square is so many times that of all other devices is a slip of units at the least.
_ABSURD = 1e6
# No name of a column or a rule is longer.
_LONGEST = 1_000
# How many records must be here before others are measured by them.
_MEASURE = 100


class Devices(msgspec.Struct, frozen=True):
    """Who is in a federated trial, by arm; units of sites count as devices.

    Attributes:
        enrolled: Devices that have joined.
        reported: Those whose report is durable.
        sites: The units of the sites that have reported, by the sites' names.
        withdrawn: Devices whose report was counted and then taken out; none of `reported`, and so among the missing.
    """

    enrolled: dict[str, int]
    reported: dict[str, int]
    sites: dict[str, int] = {}
    withdrawn: dict[str, int] = {}

    def with_reports(self, more: Mapping[str, int], out: Mapping[str, int]) -> Devices:
        """With so many more reports, those that are taken out being less; and so many more withdrawn."""
        reported = {arm: n + more.get(arm, 0) for arm, n in self.reported.items()}
        withdrawn = {arm: self.withdrawn.get(arm, 0) + out.get(arm, 0) for arm in self.reported}
        return msgspec.structs.replace(self, reported=reported, withdrawn=withdrawn)

    @property
    def missing(self) -> dict[str, int]:
        """Devices that have joined and whose report is not here."""
        return {arm: max(n - self.reported[arm], 0) for arm, n in self.enrolled.items()}


def is_plain(text: str) -> bool:
    """Whether a text of a site's may be shown."""
    return text.isprintable() and len(text) <= _LONGEST


def units_of(trial: Trial) -> Counter[str]:
    """How many units a site's tallies are of, by arm."""
    if not trial.seen.hashes:  # the tallies count them
        return Counter(trial.tallies.census().units())
    by_arm = trial.seen.by_group(1)[0, :, 0].reshape(trial.seen.strata, -1).sum(axis=0)
    return Counter(dict(zip(trial.plan.arms, by_arm.tolist(), strict=True)))


def require_newcomers(privacy: Privacy, arms: Iterable[str], before: Sequence[int], now: Sequence[int]) -> None:
    """Refuse tallies that are to replace others, if the difference of both would be of a few units.

    Raises:
        MessageError: It would.
    """
    least = least_to_publish(privacy)
    for arm, had, has in zip(arms, before, now, strict=True):
        if has - had < least:
            raise MessageError(
                f"the site has {many(max(has - had, 0), 'unit')} more in the arm {arm} than when it sent before: with "
                f"fewer than {least:,} (the plan's `cohort` or `smallest_cell`) the difference would say too much "
                "about each. Send again when more have come."
            )


class ShareState(msgspec.Struct, array_like=True):
    """A share as it is kept."""

    trial: bytes
    replies: list[Any] | None
    devices: list[int]
    largest: list[int]
    sites: list[tuple[str, str, int, bytes]] = []
    summands: Any = None


class Sending(NamedTuple):
    """What a site has sent last.

    Attributes:
        site: What the site is called.
        number: How many times it has sent.
        share: Its tallies.
    """

    site: str
    number: int
    share: ServerShare


class ServerShare:
    """What one server has taken in of a federated trial.

    A share is folded into in place; ``copy`` before, where a fold must be undone.

    Attributes:
        plan: The plan.
        own: The tallies of devices' records; of a site's share, the site's.
        replies: The sums of the replies, by arm, once there are some.
        sites: What each site has sent last, by a random number of its own.
        out: Devices that have withdrawn, and are still in all of these; in memory only.
        summands: What one of two servers has added up, where the mode has two; the tallies are then empty.
        impossible: Of both servers' sums, the arms and groups that are left out of the tallies.
    """

    def __init__(
        self,
        trial: Trial,
        replies: list[Replies] | None = None,
        devices: Sequence[int] | None = None,
        largest: Sequence[int] | None = None,
        sites: Mapping[str, Sending] | None = None,
        summands: Summands | None = None,
    ) -> None:
        self.plan = trial.plan
        self.own = trial
        self.replies = replies
        self.sites = dict(sites or {})
        self._devices = [0] * len(self.plan.arms) if devices is None else list(devices)
        self._largest = [0] * len(self.plan.arms) if largest is None else list(largest)
        self.out: ServerShare | None = None
        self.impossible: list[tuple[int, int]] = []
        two = self.plan.mode is not None and MODES[self.plan.mode].two_servers
        self.summands = Summands(self.plan) if two and summands is None else summands
        self._most: Floats | None = None  # what is not absurd next to the records here; worked out when it is needed

    @classmethod
    def of(cls, plan: Plan, state: bytes | None = None, published: Published | None = None) -> Self:
        """A share of nothing yet, or from its state; replies can only be read along with what they reply to."""
        if state is None:
            return cls(Trial(plan))
        saved = unpack(state, ShareState)
        trial = Trial.loads(saved.trial, plan)
        counts = (saved.devices, saved.largest)
        if any(len(each) != len(plan.arms) or min(each) < 0 for each in counts):
            raise StateError("the state does not fit its plan: it counts the devices of other arms.")
        sites = {key: Sending(site, number, cls.of(plan, own)) for key, site, number, own in saved.sites}
        if saved.replies is None:
            summands = None if saved.summands is None else Summands.loads(saved.summands, plan)
            return cls(trial, devices=saved.devices, largest=saved.largest, sites=sites, summands=summands)
        if published is None:
            raise StateError("the state does not fit its plan: it has replies to nothing that was published.")
        if len(saved.replies) != len(plan.arms):
            raise StateError("the state does not fit its plan: it has replies of other arms.")
        replies = [Replies.restore(state, published.segments) for state in saved.replies]
        return cls(trial, replies, saved.devices, saved.largest)

    @property
    def trial(self) -> Trial:
        """The tallies of all records, of devices and of sites."""
        whole = self.own
        for _, _, site in self.sites.values():
            whole = whole.merge(site.own)
        return whole

    @property
    def n(self) -> int:
        """The number of records; of reports, where no single server can know of how many records these are."""
        if self.summands is not None:
            return int(self.summands.reports.sum())
        return sum(each.own.n for each in self._parts())

    @property
    def devices(self) -> list[int]:
        """By arm, the devices and the units of sites that have records in the tallies."""
        return [sum(counts) for counts in zip(*(each._devices for each in self._parts()), strict=True)]

    @property
    def without_sites(self) -> Self:
        """What devices have sent."""
        return type(self)(self.own, devices=self._devices, largest=self._largest)

    @property
    def largest(self) -> list[int]:
        """By arm, the most records that one device or site has sent; 0 where there is none."""
        return [max(counts) for counts in zip(*(each._largest for each in self._parts()), strict=True)]

    def _parts(self) -> list[ServerShare]:
        return [self, *(sending.share for sending in self.sites.values())]

    @property
    def split(self) -> Summands:
        """What this server has added up, in a mode of two servers."""
        assert self.summands is not None
        return self.summands

    def joins(self, code: int, devices: int = 1) -> None:
        """Count devices of an arm, of whose records this server knows nothing."""
        self._devices[code] += devices

    @property
    def newcomers(self) -> Newcomers:
        """How many messages have come since the share was last stored; each is of a unit of its own."""
        return self.own.newcomers

    @newcomers.setter
    def newcomers(self, newcomers: Newcomers) -> None:
        self.own.newcomers = newcomers

    def sent_by(self, key: str, site: str, number: int = 1) -> Self:
        """A share of nothing but this one, as what a site has sent."""
        return type(self)(Trial(self.plan), sites={key: Sending(site, number, self)})

    def copy(self) -> Self:
        """A share of its own with the same tallies."""
        replies = None if self.replies is None else list(self.replies)
        summands = None if self.summands is None else self.summands.copy()
        twin = type(self)(self.own.copy(), replies, self._devices, self._largest, self.sites, summands)
        twin.out = None if self.out is None else self.out.copy()
        return twin

    def settled(self) -> Self:
        """Without the devices that have withdrawn."""
        if self.out is None:
            return self
        devices = [n - out for n, out in zip(self._devices, self.out._devices, strict=True)]
        summands = None if self.summands is None else self.summands.without(self.out.split)
        own = self.own.without(self.out.own)
        return type(self)(own, self.replies, devices, self._largest, self.sites, summands)

    def code(self, arm: str) -> int:
        """An arm's place in the plan."""
        places = {name: place for place, name in enumerate(self.plan.arms)}
        if arm not in places:
            raise MessageError(f"the message names an arm that the plan has not; its arms are {', '.join(places)}.")
        return places[arm]

    def require_group(self, group: int) -> None:
        """Refuse a group that the plan has not.

        Raises:
            MessageError: It has not.
        """
        if group >= self.plan.groups:
            raise MessageError("the message names a group that the plan has not.")

    def require_few(self, message: Counted) -> None:
        """Refuse a message of an arm that the plan has not, or of more records than a device may have.

        Raises:
            MessageError: It is one.
        """
        self.code(message.arm)
        if message.n > self.plan.unit_records:
            raise MessageError(
                f"the message is about more records than the plan takes of a device (`federated.device_records`, "
                f"{self.plan.unit_records:,})."
            )

    def require_of_units(self, units: Sequence[int], records: Sequence[int]) -> None:
        """Refuse a site's counts, by arm, if so many units cannot have so many records.

        Raises:
            MessageError: They cannot.
        """
        if any(n > count * self.plan.unit_records for count, n in zip(units, records, strict=True)):
            raise MessageError(
                f"the message is about more records than its units may have: the plan takes "
                f"{self.plan.unit_records:,} of each (`federated.device_records`)."
            )

    def require_dropped(self, dropped: Faults, folded: int) -> None:
        """Refuse a site's counts of faulty records that do not fit the plan, or are more than it allows.

        Raises:
            MessageError: They do not, or are.
        """
        texts = [text for fault in dropped for text in (fault.column, fault.rule)]
        arms = {*dropped.records, *(fault.arm for fault in dropped)}
        counted = all(f.records <= dropped.records[f.arm] for f in dropped if f.rule != CLIPPED)
        positive = min([*dropped.records.values(), *dropped.reasons.values()], default=1) > 0
        said = all(map(is_plain, texts))
        if not (arms <= {NO_ARM, *self.plan.arms} and counted and positive and said):
            raise MessageError("the message's counts of faulty records do not fit its plan.")
        if too_many := excess(dropped, folded, self.plan.drop_limit, Faults()):
            raise MessageError(too_many)

    def require_within(self, means: Floats, bounds: ArrayLike) -> None:
        """Refuse means beyond the bounds of their columns: records within these have none.

        Raises:
            MessageError: There is one.
        """
        lower, upper = np.reshape(np.asarray(bounds, dtype=np.float64), (-1, 2)).T
        slack = ROUNDING * (upper - lower)
        if np.any((means < lower - slack) | (means > upper + slack)):
            raise MessageError("the message's numbers lie beyond the plan's `bounds`.")

    def require_usual(self, mean_squares: Floats) -> None:
        """Refuse mean squares, by column, that are absurd next to those of all other devices.

        Raises:
            MessageError: They are.
        """
        if self._most is None:
            self._most = _most_squares(self.trial)
        if self._most is not None and np.any(mean_squares > self._most):
            raise MessageError("the message's numbers are absurdly large next to those of all other devices.")

    def counted(self, messages: Sequence[Counted]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Count the devices, and give the messages' arms and numbers of records."""
        codes = np.array([self.code(message.arm) for message in messages], dtype=np.intp)
        for code, message in zip(codes, messages, strict=True):
            self._devices[code] += not isinstance(message, DeviceMoments) or message.first
            self._largest[code] = max(self._largest[code], message.n)
        self._most = None
        return codes, np.array([message.n for message in messages], dtype=np.int64)

    def merge(self, other: ServerShare) -> Self:
        """The share of both servers; of a site that has sent to both, what it sent last."""
        if self.replies is None or other.replies is None:
            replies = other.replies if self.replies is None else self.replies
        else:
            replies = [a + b for a, b in zip(self.replies, other.replies, strict=True)]
        devices = [a + b for a, b in zip(self._devices, other._devices, strict=True)]
        largest = [max(pair) for pair in zip(self._largest, other._largest, strict=True)]
        sites = dict(self.sites)
        for key, sending in other.sites.items():
            if key not in sites or sites[key].number < sending.number:
                sites[key] = sending
        # Where there are two servers, each has a single share.
        summands = max(filter(None, (self.summands, other.summands)), key=lambda each: each.batch, default=None)
        merged = type(self)(self.own.merge(other.own), replies, devices, largest, sites, summands)
        outs = [share.out for share in (self, other) if share.out is not None]
        merged.out = outs[0].merge(outs[1]) if len(outs) == 2 else next(iter(outs), None)
        return merged

    def dumps(self) -> bytes:
        """As bytes."""
        assert self.out is None, "what is written is settled"
        replies = None if self.replies is None else [each.state() for each in self.replies]
        sites = [(key, *sending[:2], sending.share.dumps()) for key, sending in sorted(self.sites.items())]
        summands = None if self.summands is None else self.summands.state()
        return pack(ShareState(self.own.dumps(), replies, self._devices, self._largest, sites, summands))


def _most_squares(trial: Trial) -> Floats | None:
    """The largest mean squares, by column, that are not absurd next to those here; none while there are too few."""
    if trial.n < _MEASURE:
        return None
    here = trial.tallies.mean_squares()
    # A column that has been zero until now says nothing about its size.
    return np.where(here > 0, _ABSURD**2 * here, np.inf)
