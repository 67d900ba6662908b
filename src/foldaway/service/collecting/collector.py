"""One trial on one server: batches in, numbered by their producers; receipts out, once a lot of them is folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from foldaway.account.pace import Pace
from foldaway.errors import Conflict, FoldawayError, TrialClosed
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.shard import Shard
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded

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


Claim = Callable[[], None]
"""Makes a producer's name its sender's, or raises an error because it is another's."""


class Arrival(NamedTuple):
    """A batch that has come, its numbers, if it has any, and how to claim its producer's name, if that is new."""

    batch: Decoded
    numbers: Numbers | None = None
    claim: Claim | None = None


class Collector:
    """Takes a trial's batches into this server's shard.

    Not for several threads at once: the server has one that folds.

    Attributes:
        shard: What is durable and pending here.
    """

    def __init__(self, store: Store, trial: str, shard: str, pace: Pace | None = None) -> None:
        self._store = store
        self.shard = Shard(store, trial, shard, pace)
        self._fingerprint = self.shard.plan.fingerprint

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
            TrialClosed: The trial takes no more records.
        """
        trial = self.shard.plan.name
        if self._store.trial(trial).status != "open":
            raise TrialClosed(f"the trial {trial} is closed and takes no more records.")
        if any(numbers is not None and self.shard.sequences.moved_away(numbers) for _, numbers, _ in arrivals):
            # Before any of the lot is folded: what is given up was answered as pending, and nothing of these was.
            self.shard.give_up()
        before = self.shard.copy()
        outcomes: list[int | FoldawayError | None] = []
        try:
            small = self._together(arrivals)
            outcomes = [small[i] if i in small else self._taken(arrival) for i, arrival in enumerate(arrivals)]
            self.shard.commit_if_due(on_tick=False)
        except BaseException as error:
            if not isinstance(error, Conflict):  # which takes all that was pending
                # Not acknowledged: as if they had never come. Should the database have taken them nevertheless, the
                # version is no longer ours, and the next commit is a Conflict.
                self.shard = before
            if not isinstance(error, FoldawayError):
                raise
            return [outcome if isinstance(outcome, FoldawayError) else error for outcome in outcomes]
        receipts = [self._receipt(each.numbers, outcome) for each, outcome in zip(arrivals, outcomes, strict=True)]
        self.shard.fix_if_due()
        return receipts

    def _together(self, arrivals: Sequence[Arrival]) -> dict[int, int]:
        """Fold small batches without a number as one, if all of their records are good; how many each has, by place.

        A fold costs the same for one record as for a hundred.
        """
        # One that may hold a cohort is looked at by itself.
        most = min(SMALL, self.shard.plan.privacy.cohort - 1)
        sizes: dict[int, int] = {}
        for i, (batch, numbers, _) in enumerate(arrivals):
            size = batch.records.num_rows
            if numbers is None and not batch.ragged and size <= most and sum(sizes.values()) + size <= SMALL:
                sizes[i] = size
        # A batch's units may be complete, and then two batches have two units.
        if len(sizes) < 2 or self.shard.plan.whole_units:
            return {}
        live = self.shard.live.copy()
        try:
            # In one piece: of a table in many, every column would be joined by itself.
            records = [b for i in sizes for b in _batches(arrivals[i].batch.records)]
            folded = live.fold(pa.concat_batches(records), several=True)
        except (FoldawayError, pa.ArrowInvalid):  # one is faulty, or written in another way
            return {}
        if folded < sum(sizes.values()):
            return {}  # some are faulty, and it must be told whose
        self.shard.live = live
        self.shard.sequences.unnumbered += folded
        return sizes

    def _taken(self, arrival: Arrival) -> int | FoldawayError | None:
        """Fold a batch; how many records it has, or None if it has come before, or why it is refused."""
        batch, numbers, claim = arrival
        live, sequences = self.shard.live, self.shard.sequences
        before = None if claim is None else live.copy()
        try:
            if numbers is None:
                folded = live.fold(batch.records, batch.ragged)
                sequences.unnumbered += folded
            elif (move := sequences.move(numbers)) is not None:
                folded = live.fold(batch.records, batch.ragged)
                if claim is not None:
                    claim()  # only now: a batch that is refused leaves no name
                sequences.moves[numbers.producer] = move
            else:
                return None
        except FoldawayError as error:
            self.shard.live = before or live
            return error
        return folded

    def _receipt(self, numbers: Numbers | None, outcome: int | FoldawayError | None) -> Receipt | FoldawayError:
        if isinstance(outcome, FoldawayError):
            return outcome
        folded, repeated = outcome or 0, outcome is None
        if numbers is None:
            pending = folded > 0 and self.shard.live.pending > 0
            note = PENDING if pending else None
            return Receipt(self._fingerprint, None, None, folded, repeated, None, pending, note)
        producer, _, last = numbers
        if folded and producer not in self.shard.sequences.moves:
            durable = last  # it was in the commit just now
        else:
            try:
                durable = self.shard.sequences.known(producer)[0]
            except FoldawayError as error:
                return error
        return Receipt(self._fingerprint, producer, last, folded, repeated, durable, durable < last)


def _batches(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    return [records] if isinstance(records, pa.RecordBatch) else records.to_batches()
