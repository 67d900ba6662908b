"""The contract of a mode: what a device takes in and sends, what is checked on arrival, what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.errors import MessageError
from foldaway.federated.messages import DeviceMessage
from foldaway.federated.modes.share import ROUNDING, Devices, ServerShare
from foldaway.federated.replies.integrity import Integrity
from foldaway.federated.replies.published import Published
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.vocabulary import MODES as WORDS
from foldaway.tallies import Held
from foldaway.trial import Trial


class Mode(ABC):
    """One way in which devices take part in a trial without giving their records away.

    Its name, what it needs of a plan and what it collects at the end are declared in the plan's vocabulary.

    Attributes:
        name: Its name there.
        reports: The kind of message that a device's one report is.
    """

    name: ClassVar[str]
    reports: ClassVar[type[DeviceMessage]]

    @property
    def withdraws(self) -> bool:
        """Whether a device can take its report out again."""
        return not self.replies

    @property
    def replies(self) -> bool:
        """Whether a report is a reply to what is published at the end.

        Devices then keep their records until they have replied, and send moments of them before; an end waits for
        replies.
        """
        return WORDS[self.name].at_end

    def numbers(self, plan: Plan, message: Any) -> Floats:
        """The numbers in a message; unless it is a reply, its factor.

        Raises:
            MessageError: There are more or fewer than the plan makes.
        """
        R: Floats = message.triangle(len(plan.columns))
        return R

    @property
    def two_servers(self) -> bool:
        """Whether two servers add reports up, and can read them only together, at the end."""
        return WORDS[self.name].two_servers

    def check(self, share: ServerShare, message: Any, published: Published | None) -> Floats:
        """The numbers in a message, if those of a device of this plan can be so; unless it is a reply, its factor.

        Raises:
            MessageError: They cannot.
            TooEarly: Nothing has been published that it could reply to.
        """
        share.require_few(message)
        n: int = message.n
        R = self.numbers(share.plan, message)
        if share.plan.weight is None and abs(R[0, 0] ** 2 - n) > ROUNDING * n:
            fault = "the message's factor is not one of so many records: its first number is not their root."
            raise MessageError(fault)
        if not R[0, 0]:
            raise MessageError("the message's factor has no intercept.")
        lengths = np.linalg.norm(R, axis=0)
        # Where columns depend on one another, a factor may have more rows than rank.
        if n < len(R) and np.linalg.matrix_rank(R / np.where(lengths > 0, lengths, 1), tol=ROUNDING) > n:
            raise MessageError("the message's factor has more directions than records.")
        share.require_usual(np.sum(R**2, axis=0) / R[0, 0] ** 2)
        names = enumerate(share.plan.columns)
        bounded = {place: share.plan.bounds[name] for place, name in names if name in share.plan.bounds}
        share.require_within(R[0, list(bounded)] / R[0, 0], list(bounded.values()))
        return R

    def fold(
        self, share: ServerShare, messages: Sequence[Any], values: Sequence[Floats], published: Published | None
    ) -> None:
        """Take checked messages of one kind in; unless they are replies, each is a cluster of its own."""
        if messages:
            share.own.fold_clusters(*share.counted(messages), np.stack(values))

    @abstractmethod
    def results(
        self, share: ServerShare, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, Integrity | None]:
        """The effects of all servers' shares together, and what the replies say about themselves, if there are any."""

    def held(self, share: ServerShare) -> Held:
        """What the coordinator keeps of records, cell by cell, as an audit attacks it."""
        return share.trial.tallies

    # In words.

    @abstractmethod
    def described(self, plan: Plan) -> str:
        """What a device keeps and sends, for a person."""

    @abstractmethod
    def longest(self, plan: Plan) -> Sequence[DeviceMessage]:
        """The longest messages that a device can send, of each kind."""


class SentBefore(NamedTuple):
    """What a site remembers of what it has sent, since whoever has both messages sees the difference.

    Attributes:
        exits: For each of the plan's histograms, exits by message, arm (of a stratum) and bin.
        levels: For each of its segments, the most units that there ever were by level and arm: see
            `site_segments.counted`.
    """

    exits: Sequence[bytes]
    levels: Sequence[Sequence[int]]


class SiteMode(Mode):
    """A mode in which sites with many units take part too."""

    @abstractmethod
    def from_site(self, trial: Trial, before: SentBefore | None = None) -> bytes:
        """What a site sends of the records that it has folded, in place of what it sent before, if it has."""

    def exits_told(self, trial: Trial, before: SentBefore | None) -> list[bytes]:
        """For each of the plan's histograms, the exits that a site tells, by arm and bin: what it remembers of them."""
        return []

    @abstractmethod
    def site(self, share: ServerShare, data: bytes) -> ServerShare:
        """What a site has sent, if it is of units of this plan and could have come from a site.

        Raises:
            MessageError: It could not.
        """


def longest_arm(plan: Plan) -> str:
    """The arm with the longest name."""
    return max(plan.arms, key=lambda arm: len(arm.encode()))
