"""One trial on one server: batches in, numbered by their producers; receipts out, once a lot of them is folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from foldaway.account.account import Lost
from foldaway.account.pace import Pace
from foldaway.errors import FoldawayError, TrialEnded
from foldaway.service.collecting.collector import Collector
from foldaway.service.collecting.numbers import Numbers, Sequences
from foldaway.service.collecting.record_store import RecordStore
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded
from foldaway.trial import Trial

SMALL = 100
"""Records that are folded together; also the levels of a segment that one batch may show."""


class Receipt(msgspec.Struct, frozen=True):
    """What became of a batch.

    Attributes:
        folded: Records of the batch that were folded.
        repeated: Whether the batch had come before, and was not folded again.
        durable: The producer's last sequence that is safe whatever crashes; null for batches without a sequence.
        pending: Whether this batch is not yet safe. Whether others' are is not the sender's to know.
        note: Of a batch without a sequence that is not durable yet, what may become of it.
    """

    fingerprint: str
    producer: str | None
    sequence: int | None
    folded: int
    repeated: bool
    durable: int | None
    pending: bool
    note: str | None = None


PENDING = (
    "pending, lost if the server stops: the records are in the server's memory until their cohort is full. Number your "
    "batches (Foldaway-Producer and Foldaway-Sequence) to be able to send them again."
)


_TAKEN = "another program wrote this shard in between: if a second server has this name, give each its own (--shard)."


class GivenUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records that were folded but never became durable, because the server stops or another one took over.

    Attributes:
        records: How many there are.
        unnumbered: How many of these came without a sequence: nobody will send them again.
        producers: Who sent the others, and still holds them.
        reason: What is wrong, if something is.
    """

    trial: str
    records: int
    unnumbered: int
    producers: list[str]
    reason: str = ""


Claim = Callable[[], None]
"""Makes a producer's name its sender's, or raises an error because it is another's."""


class Arrival(NamedTuple):
    """A batch that has come, its numbers, if it has any, and how to claim its producer's name, if that is new."""

    batch: Decoded
    numbers: Numbers | None = None
    claim: Claim | None = None


class RecordInbox(Collector[Trial, Sequences]):
    """Takes a trial's batches into this server's account of it."""

    def __init__(self, store: Store, trial: str, shard: str, pace: Pace | None = None) -> None:
        self._store = store
        self._place = RecordStore(store, trial, shard)
        self._lost: list[GivenUp] = []
        super().__init__(self._place, store.shards, shard, pace)
        self._fingerprint = self.plan.fingerprint

    @property
    def stored(self) -> float | None:
        """When this server last stored the tallies, in seconds since 1970."""
        return self._place.stored

    def receive(self, arrivals: Sequence[Arrival]) -> list[Receipt | FoldawayError]:
        """Fold batches that have come together, but for those that have come before; commit if one holds a cohort.

        Returns:
            For each a receipt, or why it was not taken in:
            SequenceGap if batches before it are missing, or a part of it is there already;
            RecordError if it is faulty and was refused whole;
            Conflict if another server has taken batches of the same producers, so that all that was pending here must
            come again;
            Unavailable if the database cannot be reached.

        Raises:
            TrialEnded: The trial takes no more records.
        """
        if self._store.trial(self.plan.name).status != "open":
            raise TrialEnded(f"the trial {self.plan.name} has ended and takes no more records.")
        numbers = [arrival.numbers for arrival in arrivals if arrival.numbers is not None]
        if any(self.account.reached.moved_away(each) for each in numbers):
            # Before any of the lot is folded: what is given up was answered as pending, and nothing of these was.
            self.account.fall_back()
        outcomes: list[int | FoldawayError | None] = []
        try:
            self.collect(lambda: outcomes.extend(self._folded(arrivals)))
        except FoldawayError as error:
            return [each if isinstance(each, FoldawayError) else error for each in outcomes or [None] * len(arrivals)]
        receipts = [self._receipt(each.numbers, outcome) for each, outcome in zip(arrivals, outcomes, strict=True)]
        self.fix_if_due()
        return receipts

    def fix_if_due(self) -> None:
        """Let all servers' moments become sums, once there are records enough; whatever fails is tried again later."""
        if self.account.live.unfixed and not self.pending:
            # What was acknowledged is durable, as moments still.
            with suppress(FoldawayError, np.linalg.LinAlgError):
                if self._place.fix_if_enough():
                    self.account.fall_back()

    def given_up(self) -> list[GivenUp]:
        """What had to be given up since this was last asked."""
        lost, self._lost = self._lost, []
        return lost

    def given_up_at_end(self) -> list[GivenUp]:
        """The same, with what is pending: the server stops."""
        pending = [self._given_up(self.pending, self.account.reached)] if self.pending else []
        return self.given_up() + pending

    def _lose(self, lost: Lost[Sequences]) -> None:
        self._lost.append(self._given_up(lost.records, lost.reached, _TAKEN if lost.overtaken else ""))

    def _given_up(self, records: int, numbers: Sequences, reason: str = "") -> GivenUp:
        return GivenUp(self.plan.name, records, numbers.unnumbered, sorted(numbers.moves), reason)

    def _is_overtaken(self) -> bool:
        return self.account.reached.overtaken()

    def _folded(self, arrivals: Sequence[Arrival]) -> list[int | FoldawayError | None]:
        small = self._together(arrivals)
        return [small[i] if i in small else self._taken(arrival) for i, arrival in enumerate(arrivals)]

    def _together(self, arrivals: Sequence[Arrival]) -> dict[int, int]:
        """Fold small batches without a number as one, if all of their records are good; how many each has, by place.

        A fold costs the same for one record as for a hundred.
        """
        # One that may hold a cohort is looked at by itself.
        most = min(SMALL, self.plan.privacy.cohort - 1)
        sizes: dict[int, int] = {}
        for i, (batch, numbers, _) in enumerate(arrivals):
            size = batch.records.num_rows
            if numbers is None and not batch.ragged and size <= most and sum(sizes.values()) + size <= SMALL:
                sizes[i] = size
        # A batch's units may be complete, and then two batches have two units.
        if len(sizes) < 2 or self.plan.whole_units:
            return {}
        before = self.account.copy()
        # In one piece: of a table in many, every column would be joined by itself.
        records = [each for i in sizes for each in _batches(arrivals[i].batch.records)]
        try:
            folded = self.account.take(partial(_fold, pa.concat_batches(records)), several=True)
        except (FoldawayError, pa.ArrowInvalid):  # one is faulty, or written in another way
            folded = 0
        if folded < sum(sizes.values()):
            self.account = before  # some are faulty, and it must be told whose
            return {}
        self.account.reached.unnumbered += folded
        return sizes

    def _taken(self, arrival: Arrival) -> int | FoldawayError | None:
        """Fold a batch; how many records it has, or None if it has come before, or why it is refused."""
        batch, numbers, claim = arrival
        before = None if claim is None else self.account.copy()
        fold = partial(_fold, batch.records, unreadable=batch.ragged)
        try:
            if numbers is None:
                folded = self.account.take(fold)
                self.account.reached.unnumbered += folded
            elif (move := self.account.reached.move(numbers)) is not None:
                folded = self.account.take(fold)
                if claim is not None:
                    claim()  # only now: a batch that is refused leaves no name
                self.account.reached.moves[numbers.producer] = move
            else:
                return None
        except FoldawayError as error:
            self.account = before or self.account
            return error
        return folded

    def _receipt(self, numbers: Numbers | None, outcome: int | FoldawayError | None) -> Receipt | FoldawayError:
        if isinstance(outcome, FoldawayError):
            return outcome
        folded, repeated = outcome or 0, outcome is None
        if numbers is None:
            pending = folded > 0 and self.pending > 0
            note = PENDING if pending else None
            return Receipt(self._fingerprint, None, None, folded, repeated, None, pending, note)
        producer, _, last = numbers
        if folded and producer not in self.account.reached.moves:
            durable = last  # it was in the commit just now
        else:
            try:
                durable = self.account.reached.known(producer)[0]
            except FoldawayError as error:
                return error
        return Receipt(self._fingerprint, producer, last, folded, repeated, durable, durable < last)


def _fold(records: pa.RecordBatch | pa.Table, trial: Trial, unreadable: int = 0) -> int:
    """Fold records into a trial; how many were good."""
    before = trial.n
    # Numbers may come as text: one bad cell makes text of its column, and `foldaway send` is judged as `run`.
    trial.fold(records, text=True, unreadable=unreadable)
    return trial.n - before


def _batches(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    return [records] if isinstance(records, pa.RecordBatch) else records.to_batches()
