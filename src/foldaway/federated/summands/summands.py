"""What one of two servers adds up: by arm and group its summands and the reports, and a digest of whose they are.

The leader numbers its batches. It adds up a batch when the helper has, and the helper takes a batch for added when the
leader's next request begins after it. Until then the helper holds it beside what is settled, as a candidate: a leader
that crashed in between may send another batch of the same number, and a request that was delayed may come late. The
digest says which one the leader has. So both servers add up the same reports, whatever is lost, repeated or overtaken.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.errors import IngestError, StateError
from foldaway.federated.summands.words import Words, count_of, packed, unpacked
from foldaway.keeping.state import decode_part
from foldaway.plan import Plan

# More candidates than a leader ever needs; the oldest goes.
_MOST_CANDIDATES = 100


class Half(NamedTuple):
    """What one server has of a report.

    Attributes:
        number: The report number, hashed.
        arm: The arm's place in the plan.
        group: The group.
        words: The server's summands.
    """

    number: bytes
    arm: int
    group: int
    words: Words

    def said(self) -> bytes:
        """What a digest is of."""
        return self.number + self.arm.to_bytes(2, "big") + self.group.to_bytes(2, "big")


class HeldBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch that the leader may have added up: what it adds, and the reports that it adds and takes out."""

    digest: bytes
    words: bytes
    reports: bytes
    numbers: list[bytes]
    out: list[bytes] = []


class SummandsState(msgspec.Struct, array_like=True):
    """Summands as they are kept."""

    batch: int
    digest: bytes
    words: bytes
    reports: bytes
    candidates: list[HeldBatch]


class Summands:
    """What one server has added up.

    Attributes:
        batch: The number of the last batch in it.
        digest: Of all reports in it, batch by batch.
        words: By arm and group, the summands of n and of each sum.
        reports: How many reports, by arm and group.
        candidates: On the helper, the batches of which one may be the next.
    """

    def __init__(self, plan: Plan) -> None:
        arms, groups = len(plan.arms), plan.groups
        self.batch, self.digest = 0, sha256(f"foldaway shares\n{plan.fingerprint}".encode()).digest()
        self.words: Words = np.zeros((arms, groups, count_of(plan)), dtype=np.uint64)
        self.reports: NDArray[np.int64] = np.zeros((arms, groups), dtype=np.int64)
        self.candidates: list[HeldBatch] = []

    @classmethod
    def loads(cls, data: object, plan: Plan) -> Self:
        """From its state."""
        state, found = decode_part(data, SummandsState), cls(plan)
        found.batch, found.digest, found.candidates = state.batch, state.digest, state.candidates
        if len(state.words) != found.words.nbytes or len(state.reports) != found.reports.nbytes:
            raise StateError("the state does not fit its plan: it has summands of other arms or groups.")
        found.words = unpacked(state.words, found.words.size).reshape(found.words.shape)
        found.reports = np.frombuffer(state.reports, dtype="<i8").astype(np.int64).reshape(found.reports.shape)
        return found

    def state(self) -> SummandsState:
        """As it is kept."""
        return SummandsState(
            self.batch, self.digest, packed(self.words), self.reports.astype("<i8").tobytes(), list(self.candidates)
        )

    def copy(self) -> Self:
        """The same, to be folded into by itself."""
        found = object.__new__(type(self))
        vars(found).update(vars(self))
        found.words, found.reports, found.candidates = self.words.copy(), self.reports.copy(), list(self.candidates)
        return found

    def add(self, halves: Sequence[Half], out: Sequence[Half] = ()) -> None:
        """Add reports up, and take others out."""
        for half in halves:  # numbers of 64 bits wrap around, which is what is wanted
            self.words[half.arm, half.group] += half.words
            self.reports[half.arm, half.group] += 1
        for half in out:
            self.words[half.arm, half.group] -= half.words
            self.reports[half.arm, half.group] -= 1

    def without(self, other: Summands) -> Self:
        """Without what another has."""
        found = self.copy()
        found.words -= other.words
        found.reports -= other.reports
        return found

    def after(self, halves: Sequence[Half], out: Sequence[Half] = ()) -> bytes:
        """The digest once these are the next batch."""
        lists = ([half.said() for half in each] for each in (halves, out))
        said = b"".join(len(each).to_bytes(8, "big") + b"".join(sorted(each)) for each in lists)
        return sha256(self.digest + (self.batch + 1).to_bytes(8, "big") + said).digest()

    # Of the helper.

    def follow(self, batch: int, after: bytes) -> HeldBatch | None:
        """Take for added up what the leader has before a batch of this number; what is so from now on.

        Raises:
            IngestError: The request comes late, or the leader has what this server has not.
        """
        if batch == self.batch + 1 and after == self.digest:
            return None
        if batch <= self.batch + 1:
            raise IngestError(409, "this batch was overtaken by a later one; nothing was changed.")
        chosen = next((each for each in self.candidates if each.digest == after), None)
        if batch != self.batch + 2 or chosen is None:
            raise IngestError(
                409,
                "the leader has added up reports that this server has not. One of them was restored from an old "
                "backup: restore both as of one time, or end the trial without effects.",
            )
        self.words += unpacked(chosen.words, self.words.size).reshape(self.words.shape)
        self.reports += np.frombuffer(chosen.reports, dtype="<i8").reshape(self.reports.shape)
        self.batch, self.digest, self.candidates = self.batch + 1, chosen.digest, []
        return chosen

    def propose(self, halves: Sequence[Half], out: Sequence[Half] = ()) -> bytes:
        """Hold a batch that may be the next, beside others; its digest."""
        digest = self.after(halves, out)
        if all(each.digest != digest for each in self.candidates):
            apart = self.copy()
            apart.words[...], apart.reports[...] = 0, 0
            apart.add(halves, out)
            numbers = ([half.number for half in each] for each in (halves, out))
            made = HeldBatch(digest, packed(apart.words), apart.reports.astype("<i8").tobytes(), *numbers)
            self.candidates = [*self.candidates, made][-_MOST_CANDIDATES:]
        return digest
