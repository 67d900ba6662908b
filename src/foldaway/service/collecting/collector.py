"""One trial on one server: batches in, numbered by their producers; states out, a cohort apart.

``durable`` is what the database holds of this server's shard. ``live`` is that and the batches folded since. A commit
writes the live tallies and the producers' last sequences in one transaction, so a batch is in both or in neither, and
a producer that resends what was not durable is counted exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from foldaway.errors import Conflict, FoldawayError, SequenceGap, TrialClosed
from foldaway.inference.adjusting import LEAST_PER_COLUMN
from foldaway.keeping.cohort import may_write
from foldaway.plan import Plan
from foldaway.records.columns import as_table
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Decoded
from foldaway.trial import Trial

FIXED_AT = 2_000
"""Records of all servers together at which a trial's coefficients are fixed and its moments destroyed."""


_SMALL = 100  # records that are folded together; also the levels of a segment that one batch may show


def fixed_at(plan: Plan) -> int:
    """`FIXED_AT`, or as many as a plan with very many columns needs."""
    return max(FIXED_AT, LEAST_PER_COLUMN * len(plan.regressors))


class Receipt(msgspec.Struct, frozen=True):
    """What became of a batch.

    Attributes:
        folded: Records of the batch that were folded.
        repeated: Whether the batch had come before, and was not folded again.
        durable: The producer's last sequence that is safe whatever crashes; null for batches without a sequence that
            are not yet safe.
        pending: Whether records of this server wait for their cohort; how many is not the sender's to know.
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


class Arrival(NamedTuple):
    """A batch that has come.

    Attributes:
        batch: The records.
        producer: Who numbers the batches; None if nobody does.
        sequence: The batch's number, or the last one if it has several.
        first: The first one, if it has several.
    """

    batch: Decoded
    producer: str | None
    sequence: int | None
    first: int | None = None


class GivenUp(msgspec.Struct, frozen=True):
    """Records that were folded but never became durable, because the server stops or another one took over.

    Attributes:
        trial: The trial's name.
        records: How many there are.
        unnumbered: How many of these came without a sequence: nobody will send them again.
        producers: Who sent the others, and still holds them.
    """

    trial: str
    records: int
    unnumbered: int
    producers: list[str]


class Collector:
    """A trial's shard on this server. Not for several threads at once: the server has one that folds."""

    def __init__(self, store: Store, name: str, shard: str) -> None:
        self._store = store
        self._given_up: list[GivenUp] = []
        self.name = name
        self.shard = shard
        self.plan = Plan.loads(store.trial(name).plan)
        self._reload()

    def _reload(self) -> None:
        """Start from what is durable."""
        row = self._store.shards.one(self.name, self.shard)
        key = self._store.trial_key(self.name) if self.plan.keyed else None
        live = Trial(self.plan, key=key) if row.state is None else Trial.loads(row.state, self.plan, key=key)
        # All at once, when nothing can fail any more: older tallies under a newer version would overwrite what is safe.
        self._version, self._live = row.version, live
        self._sequences: dict[str, tuple[int, int]] = {}
        self._unnumbered = 0

    def _give_up(self) -> None:
        """Start again from what is durable; batches folded since are with their producers, if they have a number."""
        given_up = self.pending_from()
        self._reload()
        self._given_up += given_up

    @property
    def pending(self) -> int:
        """Records folded since the last commit."""
        return self._live.newcomers.records

    @property
    def durable(self) -> int:
        """Records of this shard that are durable."""
        return self._live.n - self.pending

    def pending_from(self) -> list[GivenUp]:
        """Who sent the records that are pending, if there are any."""
        return [GivenUp(self.name, self.pending, self._unnumbered, sorted(self._sequences))] if self.pending else []

    def given_up(self) -> list[GivenUp]:
        """What had to be given up since this was last asked."""
        found, self._given_up = self._given_up, []
        return found

    def receive(self, arrivals: Sequence[Arrival]) -> list[Receipt | FoldawayError]:
        """Fold batches that have come together, but for those that have come before; commit if a cohort is there.

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
        if self._store.trial(self.name).status != "open":
            raise TrialClosed(f"the trial {self.name} is closed and takes no more records.")
        if any(self._moved(arrival) for arrival in arrivals):
            # Before any of the lot is folded: what is given up was answered as pending, and nothing of these was.
            self._give_up()
        before = self._live.copy(), dict(self._sequences), self._unnumbered
        outcomes: list[int | FoldawayError | None] = []
        try:
            small = self._together(arrivals)
            outcomes = [small[i] if i in small else self._taken(arrival) for i, arrival in enumerate(arrivals)]
            self.commit_if_due()
        except BaseException as error:
            if not isinstance(error, Conflict):  # which takes all that was pending
                # Not acknowledged: as if they had never come. Should the database have taken them nevertheless, the
                # version is no longer ours, and the next commit is a Conflict.
                self._live, self._sequences, self._unnumbered = before
            if not isinstance(error, FoldawayError):
                raise
            return [outcome if isinstance(outcome, FoldawayError) else error for outcome in outcomes]
        receipts = [self._told(arrival, outcome) for arrival, outcome in zip(arrivals, outcomes, strict=True)]
        self.fix_if_due()
        return receipts

    def _moved(self, arrival: Arrival) -> bool:
        """Whether a producer with batches that are pending here was with another server in between."""
        _, producer, sequence, first = arrival
        if producer not in self._sequences or sequence is None:
            return False
        durable, known = self._sequences[producer]
        return (first or sequence) > known + 1 and self.durable_sequence(producer) != durable

    def _told(self, arrival: Arrival, outcome: int | FoldawayError | None) -> Receipt | FoldawayError:
        if isinstance(outcome, FoldawayError):
            return outcome
        try:
            return self._receipt(arrival, outcome)
        except FoldawayError as error:
            return error

    def _together(self, arrivals: Sequence[Arrival]) -> dict[int, int]:
        """Fold small batches without a number as one, if all of their records are good; how many each has, by place.

        A fold costs the same for one record as for a hundred.
        """
        sizes: dict[int, int] = {}
        for i, (batch, producer, *_) in enumerate(arrivals):
            size = batch.records.num_rows
            if producer is None and not batch.ragged and sum(sizes.values()) + size <= _SMALL:
                sizes[i] = size
        # A batch's units may be complete, and then two batches have two units.
        if len(sizes) < 2 or self.plan.complete_units:
            return {}
        trial = self._live.copy()
        try:
            trial.fold(pa.concat_tables([as_table(arrivals[i].batch.records) for i in sizes]), text=True)
        except (FoldawayError, pa.ArrowInvalid):  # one is faulty, or written in another way
            return {}
        if trial.n - self._live.n < sum(sizes.values()):
            return {}  # some are faulty, and it must be told whose
        self._live = trial
        self._unnumbered += sum(sizes.values())
        return sizes

    def _taken(self, arrival: Arrival) -> int | FoldawayError | None:
        """Fold a batch; how many records it has, or None if it has come before, or why it is refused."""
        try:
            return self._take(*arrival)
        except FoldawayError as error:
            return error

    def _take(self, batch: Decoded, producer: str | None, sequence: int | None, first: int | None) -> int | None:
        durable, known = self._known(producer)
        if producer is not None and sequence is not None:
            first = sequence if first is None else first
            if sequence <= known:
                return None
            if first != known + 1:
                raise SequenceGap(known + 1)
        before = self._live.n
        # Numbers may come as text: one bad cell makes text of its column, and `foldaway send` is judged as `run` is.
        self._live.fold(batch.records, text=True, unreadable=batch.ragged)
        if producer is not None and sequence is not None:
            self._sequences[producer] = (durable, sequence)
        else:
            self._unnumbered += self._live.n - before
        return self._live.n - before

    def _known(self, producer: str | None) -> tuple[int, int]:
        """A producer's last durable sequence, and its last one here."""
        if producer is None:
            return 0, 0
        if producer in self._sequences:
            return self._sequences[producer]
        durable = self.durable_sequence(producer)
        return durable, durable

    def durable_sequence(self, producer: str) -> int:
        """The last sequence of a producer that any server has made durable."""
        return self._store.shards.sequences(self.name, [producer]).get(producer, 0)

    def _receipt(self, arrival: Arrival, taken: int | None) -> Receipt:
        producer, sequence, folded, repeated = arrival.producer, arrival.sequence, taken or 0, taken is None
        if producer is None:
            durable = None
        elif folded and sequence is not None and producer not in self._sequences:
            durable = sequence  # it was in the commit just now
        else:
            durable = self._known(producer)[0]
        note = PENDING if producer is None and folded and self.pending else None
        return Receipt(self.plan.fingerprint, producer, sequence, folded, repeated, durable, self.pending > 0, note)

    def commit_if_due(self) -> None:
        """Commit if a cohort has come together."""
        if may_write(self.plan.privacy, self._live.newcomers):
            self.commit()

    def commit(self) -> None:
        """Make the live tallies durable, with the producers' sequences, in one transaction."""
        try:
            self._version = self._store.shards.commit(
                self.name,
                self.shard,
                version=self._version,
                n=self._live.n,
                state=self._stored(),  # encrypted there, and rich only until there are records enough
                sequences=self._sequences,
            )
        except Conflict:
            # Another server has taken batches of the same producers: what is pending here will come again.
            self._give_up()
            raise
        self._live.wrote()
        self._sequences, self._unnumbered = {}, 0

    def _stored(self) -> bytes:
        """The live tallies as they are stored; of moments, with rare levels pooled, which may become common here."""
        return self._live.exchanged() if self._live.rich else self._live.copy().dumps()

    def fix_if_due(self) -> None:
        """Let all servers' moments become sums, once there are records enough; whatever fails is tried again later."""
        if not self._live.rich or self.pending:
            return
        try:
            if sum(row.n for row in self._store.shards.all(self.name)) >= fixed_at(self.plan):
                self.fix()
        except (FoldawayError, np.linalg.LinAlgError):
            return  # what was acknowledged is durable, as moments still

    def fix(self) -> None:
        """Let all servers' moments become sums now; nothing must be pending here."""
        if self._live.rich:
            self._store.shards.rewrite(self.name, partial(_fixed, self.plan))
            self._reload()

    def whole(self, shards: Sequence[ShardRow]) -> Trial:
        """The trial of all servers together, with what is pending here.

        Raises:
            Conflict: What is pending here is no longer to be counted: another server has taken some of it, or this
                server's shard is not the one that it was built upon. It must come again.
        """
        others = [row for row in shards if row.shard != self.shard]
        durable = self._store.shards.sequences(self.name, self._sequences)
        taken = any(durable.get(producer, 0) != was for producer, (was, _) in self._sequences.items())
        if taken or sum(row.version for row in shards if row.shard == self.shard) != self._version:
            self._give_up()
            raise Conflict("another server has taken the same batches, or written this one's state, in between.")
        return merged(self.plan, others).merge(self._live)

    @property
    def sequences(self) -> dict[str, tuple[int, int]]:
        """Of each producer with batches that are pending here, the sequence that was durable before, and the last."""
        return dict(self._sequences)

    def leave_out_pending(self) -> None:
        """Once the trial was closed elsewhere: give up the records that no cohort came together for, and count them."""
        if self.pending:
            self._store.shards.leave_out(self.name, self.shard, self.pending)
        # Without asking the database, which might fail: they must not be counted twice.
        self._live, self._sequences, self._unnumbered = Trial(self.plan), {}, 0


def _fixed(plan: Plan, shards: Sequence[ShardRow]) -> dict[str, bytes]:
    """The states of shards that hold moments, as sums: with the coefficients that others have, or all together give."""
    start = merged(plan, shards).start()
    states = {}
    for row in shards:
        trial = None if row.state is None else Trial.loads(row.state, plan)
        if trial is not None and trial.rich:
            trial.fix(start)
            states[row.shard] = trial.exchanged()
    return states


def merged(plan: Plan, shards: Sequence[ShardRow]) -> Trial:
    """The trial of all servers together, as far as it is durable."""
    whole = Trial(plan)
    for row in shards:
        if row.state is not None:
            whole = whole.merge(Trial.loads(row.state, plan))
    return whole
