"""The contract of a mode: what a device takes in and sends, what is checked on arrival, what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.errors import MessageError
from foldaway.federated.messages import Coefficients, Message, Moments, unpacked
from foldaway.federated.modes.share import ROUNDING, Devices, Share
from foldaway.federated.replies.integrity import Integrity
from foldaway.federated.replies.published import Published
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import append_rows
from foldaway.plan import Plan
from foldaway.plan.vocabulary import MODES as WORDS
from foldaway.trial import Trial


class Holding(NamedTuple):
    """What a device holds when it makes its report.

    Attributes:
        number: The report's number.
        arm: The device's arm.
        group: Its group, in modes that have any.
        n: How many records it has taken.
        sums: What they came to, in modes that keep no records.
        rows: The records whose moments are durable, in modes that keep them.
    """

    number: bytes
    arm: str
    group: int
    n: int
    sums: bytes
    rows: Sequence[bytes]


class Mode(ABC):
    """One way in which devices take part in a trial without giving their records away.

    Its name, what it needs of a plan and what it collects at the close are declared in the plan's vocabulary.

    Attributes:
        name: Its name there.
        reports: The kind of message that a device's one report is.
    """

    name: ClassVar[str]
    reports: ClassVar[type[Message]]

    @property
    def replies(self) -> bool:
        """Whether a report is a reply to what is published at the close.

        Devices then keep their records until they have replied, and send moments of them before; a close waits for
        replies.
        """
        return WORDS[self.name].at_close

    # On a device.

    @abstractmethod
    def take_in(self, plan: Plan, sums: bytes, record: Floats) -> bytes | None:
        """What is kept in place of records, with one more of them in it; None if the record itself is to be kept."""

    @abstractmethod
    def report(self, plan: Plan, holding: Holding, published: Coefficients | None) -> Message | None:
        """The device's report; None if there is nothing that it could say."""

    # At the coordinator.

    def check(self, share: Share, message: Any, published: Published | None) -> Floats:
        """The numbers in a message, if those of a device of this plan can be so; unless it is a reply, its factor.

        Raises:
            MessageError: They cannot.
            TooEarly: Nothing has been published that it could reply to.
        """
        share.require_few(message)
        n: int = message.n
        R: Floats = message.triangle(len(share.plan.columns))
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
        self, share: Share, messages: Sequence[Any], values: Sequence[Floats], published: Published | None
    ) -> None:
        """Take checked messages of one kind in; unless they are replies, each is a cluster of its own."""
        if messages:
            share.trial.fold_clusters(*share.counted(messages), np.stack(values))

    @abstractmethod
    def results(
        self, share: Share, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, Integrity | None]:
        """The effects of all servers' shares together, and what the replies say about themselves, if there are any."""

    # In words.

    @abstractmethod
    def described(self, plan: Plan) -> str:
        """What a device keeps and sends, for a person."""

    @abstractmethod
    def longest(self, plan: Plan) -> Sequence[Message]:
        """The longest messages that a device can send, of each kind."""


class SiteMode(Mode):
    """A mode in which sites with many units take part too."""

    @abstractmethod
    def from_site(self, trial: Trial) -> bytes:
        """What a site sends of the records that it has folded."""

    @abstractmethod
    def site(self, share: Share, data: bytes) -> Share:
        """What a site has sent, if it is of units of this plan and could have come from a site.

        Raises:
            MessageError: It could not.
        """


# A record is K + 1 numbers on a device: its row z = [1, x, y] and its observation weight.


def stacked(records: Sequence[bytes]) -> Floats:
    """Records as they are kept, one per row."""
    return np.array([unpacked(record, len(record) // 8) for record in records])


def with_rows(R: Floats, records: Floats) -> Floats:
    """The triangular factor R with these records in it, their rows times the roots of their weights."""
    return append_rows(np.asfortranarray(R), records[:, :-1] * np.sqrt(records[:, -1:]))


def moments(number: bytes, arm: str, records: Sequence[bytes], *, first: bool) -> Moments:
    """The message for the moments of some records; ``first`` if the device has sent none before."""
    rows = stacked(records)
    columns = rows.shape[1] - 1
    return Moments.of(number, arm, len(rows), with_rows(np.zeros((columns, columns)), rows), first=first)


def longest_arm(plan: Plan) -> str:
    """The arm with the longest name."""
    return max(plan.arms, key=lambda arm: len(arm.encode()))
