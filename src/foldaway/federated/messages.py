"""What travels between devices and coordinator: JSON objects, checked to the byte before anything is done.

A message says nothing about its sender. ``number`` is 16 random bytes that the device has made for this one message,
so that the message can be repeated and is counted once. Bytes travel as base64, and so do numbers of 64 bits, since
JavaScript's own end at 2^53 and no two languages write the same digits. ``docs/protocol.md`` describes every message.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Literal, Self, TypeVar

import msgspec
import numpy as np

from foldaway.errors import MessageError, instead_of
from foldaway.numerics.block import LARGEST, Floats
from foldaway.records.faults import Fault

MEDIA_TYPE = "application/json"

# No message of a device is longer, whatever its plan; a plan's own are shorter (`modes.most_bytes`).
MOST_BYTES = 2**24
MOST_RECORDS = 10**12

Number = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Arm = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Invitation = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_RECORDS)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=MOST_RECORDS)]
Numbers = Annotated[bytes, msgspec.Meta(max_length=MOST_BYTES)]
"""Float64, little-endian, one after the other; base64 in JSON."""

Stage = Literal["open", "replying", "ended"]

Kind = Literal["enrolments", "moments", "reports", "withdrawals"]
"""The four that a device sends; a mode says what a report is, and a withdrawal is the same message once more."""


class DeviceMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every message of a device begins with: its own number, and the device's arm."""

    number: Number
    arm: Arm


class Enrolment(DeviceMessage, frozen=True, forbid_unknown_fields=True):
    """A device joins: the number under which it will report, and its arm. Sent with the device's first record.

    If the plan takes devices by invitation alone, it has one, and uses it up.
    """

    invitation: Invitation | msgspec.UnsetType = msgspec.UNSET


class Counted(DeviceMessage, frozen=True, forbid_unknown_fields=True):
    """A message about n records."""

    n: Count


class DeviceMoments(Counted, frozen=True, forbid_unknown_fields=True):
    """The triangular factor of rows z = [1, x, y], times the roots of their weights.

    Mode one-message: of all records of the device, as its report. Mode scores: of the records since the last such
    message, under a fresh number that is not enrolled; ``first`` says that the device has sent none before, so that
    devices can be counted whose messages cannot be tied to one another.
    """

    factor: Numbers
    first: bool = True

    @classmethod
    def of(cls, number: bytes, arm: str, n: int, R: Floats, *, first: bool = True) -> Self:
        """The message for a factor R (K by K, upper triangular)."""
        return cls(number, arm, n, packed(R[np.triu_indices(len(R))]), first)

    def triangle(self, columns: int) -> Floats:
        """R again, K by K."""
        R = np.zeros((columns, columns))
        R[np.triu_indices(columns)] = unpacked(self.factor, columns * (columns + 1) // 2)
        return R


class DeviceSums(Counted, frozen=True, forbid_unknown_fields=True):
    """Mode delta: how many records the device has, and the sum of each outcome in the plan's order."""

    sums: Numbers

    def triangle(self, columns: int) -> Floats:
        """The factor of n records that all have the mean outcomes: it has the same count and the same sums."""
        R = np.zeros((columns, columns))
        root = np.sqrt(float(self.n))
        R[0, 0] = root
        R[0, 1:] = unpacked(self.sums, columns - 1) / root
        return R


class GroupSums(Counted, frozen=True, forbid_unknown_fields=True):
    """Mode sums: the device's group, and the sum of each outcome and, if the plan has coefficients, of each ỹ."""

    group: Whole
    sums: Numbers


class SplitSums(DeviceMessage, frozen=True, forbid_unknown_fields=True):
    """Mode shares: the device's group; its count and sums as two summands, each sealed for one of the servers."""

    group: Whole
    leader: Numbers
    helper: Numbers


class HelpersHalf(DeviceMessage, frozen=True, forbid_unknown_fields=True):
    """What the leader forwards of a report in mode shares."""

    group: Whole
    helper: Numbers


class ReportBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reports that the leader asks the helper to add up, in mode shares.

    Attributes:
        number: One more than that of the leader's last batch.
        after: The digest of all reports that the leader has added up before.
        reports: The helper's halves.
        out: Those of reports that were added up before, and are taken out again.
        last: Whether the trial ends with it, so that it may be of fewer than a cohort.
    """

    number: Count
    after: bytes
    reports: list[HelpersHalf]
    out: list[HelpersHalf] = []
    last: bool = False


class Agreed(msgspec.Struct, frozen=True):
    """What the helper has added up of a batch.

    Attributes:
        left_out: The places of the reports in the batch that it did not take.
        digest: Of all reports, with the others of this batch.
    """

    left_out: list[int]
    digest: bytes


class Closing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The leader ends a trial in mode shares: the number and the digest of its last batch.

    Attributes:
        publish: Whether the helper is to publish its sums, or only to destroy them.
    """

    number: Whole
    digest: bytes
    publish: bool = True


class PublishedSums(msgspec.Struct, frozen=True):
    """What a server in mode shares publishes at the end of a trial, once.

    Attributes:
        digest: Of all reports.
        groups: How many groups the sums are by.
        words: By arm and group, its summands of n and of each sum; of a `release`, with its own noise.
    """

    digest: bytes
    groups: Count
    words: Numbers


class SiteCells(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mode sums: a site's counts and sums by cell.

    Attributes:
        records: How many records there are, by arm and group. Where the plan has strata, here and below the arms of
            each stratum stand side by side; and of a segment, those of each level.
        sums: Of each outcome and, if the plan has coefficients, of each ỹ, by arm and group.
        present: How many of them have each outcome, by arm, group and outcome, where the plan allows it to be missing.
    """

    records: bytes
    sums: bytes
    present: bytes | msgspec.UnsetType = msgspec.UNSET


class SiteSums(SiteCells, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mode sums: what a site sends. Its number travels beside it, and the key that dealt its groups never does.

    Attributes:
        units: How many units it has, by arm in the plan's order.
        segments: The cells of each segment. A level has no records where the site has too few units for it to be told.
        dropped: How many faulty records the site has left out, by arm.
        faults: The reasons, by arm, column and rule; and values that were brought within their bounds.
        baseline: Of each trait of the baseline table, by arm: how many records have it, their mean, the sum of squares
            about it, and the sum of sizes. Of a characteristic of text whose levels the plan does not list, nobody has
            the trait.
        levels: Of each such characteristic, how many records have which level, by arm: those that enough units have,
            and the others together as an empty name.
        exits: Where outcomes are survival, a histogram for each of their bins: exits by arm, group and bin. Between two
            bins with exits, `smallest_cell` of every arm have left.
    """

    units: list[Whole]
    segments: list[SiteCells] = []
    baseline: bytes | msgspec.UnsetType = msgspec.UNSET
    levels: dict[str, dict[str, list[Whole]]] = {}
    dropped: dict[str, Count] = {}
    faults: list[Fault] = []
    exits: list[bytes] = []


class ScoreReply(DeviceMessage, frozen=True, forbid_unknown_fields=True):
    """Mode scores: the device's reply to the published coefficients, as ``replies.models`` has it."""

    scores: Numbers


class Received(msgspec.Struct, frozen=True):
    """The answer to an enrolment, to moments and to a report.

    Attributes:
        repeated: Whether this number had been counted, or waits in this server's memory, already.
        durable: Whether it is safe whatever crashes. Until then the device keeps what it sent, and asks again with the
            same message.
    """

    repeated: bool
    durable: bool


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One regression of the plan, as a device needs it; every array is per arm, in the plan's order.

    Attributes:
        estimator: Its name.
        outcome: The place of its outcome among the plan's values.
        regressors: How many of a row's regressors it has, from the first: 1 without covariates, k otherwise.
        intercept: Whether a device sums the intercept beside the residual.
        deltas: k numbers for each arm: the residual of a framed row (s_x, s_y) is F_yy·s_y − s_x'δ.
    """

    estimator: str
    outcome: int
    regressors: int
    intercept: bool
    deltas: list[Numbers]


class PublishedCoefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the coordinator publishes when it ends a trial in mode scores.

    Attributes:
        stage: ``"replying"`` while replies count, then ``"ended"``.
        deadline: Until when, in seconds since 1970. What follows is empty once the trial has ended.
        frame: The upper triangle of the frame F, made of all arms' records: rows go through it, z F⁻¹, before
            anything else.
        models: The regressions to reply to, in this order.
    """

    stage: Stage
    deadline: float
    frame: Numbers
    models: list[Model]


Sent = TypeVar("Sent", bound=msgspec.Struct)


def new_number() -> bytes:
    """A number for one message."""
    return secrets.token_bytes(16)


def encoded(message: msgspec.Struct) -> bytes:
    """The message as bytes."""
    return msgspec.json.encode(message)


def decoded(data: bytes | bytearray | memoryview, kind: type[Sent], *, most: int | None = MOST_BYTES) -> Sent:
    """The message in the bytes; no longer than ``most``, since anybody may send one.

    Raises:
        MessageError: It is not such a message, or is longer than any.
    """
    name = re.sub("(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
    fault = f"the body is not a message of the kind {name} that is expected here."
    if most is not None and len(data) > most:
        raise MessageError(fault)
    with instead_of((ValueError, RecursionError), MessageError(fault)):
        return msgspec.json.decode(data, type=kind)


def packed(values: Floats) -> bytes:
    """Numbers as bytes."""
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def unpacked(data: bytes, length: int) -> Floats:
    """Numbers from bytes, if there are so many and all are finite and of a size to work with."""
    if len(data) != 8 * length:
        raise MessageError(f"the message holds {len(data) / 8:g} numbers where the plan makes {length}.")
    values = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not np.all(np.abs(values) <= LARGEST):  # false for those that are not numbers, too
        raise MessageError("the message holds numbers that are not finite or too large to work with.")
    return values
