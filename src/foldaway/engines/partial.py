"""What a partition comes to: a trial's state, or the faults for which the whole fold is refused.

A worker never raises: engines print the arguments of what failed into their logs, and try again what is bound to fail
again. Faults come back as counts, are added up like tallies, and are raised by whoever asked for the fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from foldaway.errors import FoldawayError, RecordError
from foldaway.numerics.threads import one_core
from foldaway.plan import Plan
from foldaway.records.faults import Fault, Faults, FaultyBatch
from foldaway.sources.formats.batch import ROWS
from foldaway.sources.formats.columns import require_columns, wanted_by
from foldaway.trial import Trial


class Partial(msgspec.Struct, frozen=True):
    """What a worker hands on.

    Attributes:
        records: How many records there were.
        state: The state of their trial; nothing if they were refused.
        refusal: Why, if it is not for single records.
        faulty: The number of faulty records by arm, where the plan refuses these.
        faults: The reasons.
    """

    records: int = 0
    state: bytes = b""
    refusal: str = ""
    faulty: dict[str, int] = {}
    faults: list[Fault] = []

    def dumps(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def loads(cls, data: bytes) -> Partial:
        """From what `dumps` gave."""
        return msgspec.msgpack.decode(data, type=cls)


def fold_partition(batches: Iterable[Any], plan: Plan, key: bytes | None) -> Partial:
    """Fold the batches of one partition, on one core; one batch is in memory at a time, all if units are complete."""
    trial = Trial(plan, key=key)
    records, faults, refusal = 0, Faults(), ""
    with one_core():
        for batch in batches:
            records += len(batch)
            try:
                trial.fold(batch)
            except FaultyBatch as error:
                faults += error.faults  # all of them are counted, for one message
            except FoldawayError as error:
                refusal = str(error)
            except Exception as error:
                # Of an unforeseen error only the kind is told: its words may quote a record.
                refusal = f"a partition could not be folded ({type(error).__name__}); nothing was folded."
            if refusal:
                break
    state = b"" if faults or refusal else trial.dumps()
    return Partial(records, state, refusal, dict(faults.records), list(faults))


def merged(partials: Iterable[Partial]) -> Partial:
    """The partial of all these records; two states are in memory at a time, however many there are."""
    records, faults, refusal = 0, Faults(), ""
    trial: Trial | None = None
    for part in partials:
        records += part.records
        faults += Faults(part.faulty.items(), part.faults)
        refusal = refusal or part.refusal
        if part.state:
            more = Trial.loads(part.state)
            trial = more if trial is None else trial + more
    state = b"" if faults or refusal or trial is None else trial.dumps()
    return Partial(records, state, refusal, dict(faults.records), list(faults))


def trial_of(partials: Iterable[Partial], plan: Plan, key: bytes | None) -> Trial:
    """The trial of all partitions.

    Raises:
        RecordError: Some partition was refused; nothing was folded.
    """
    whole = merged(partials)
    if whole.refusal:
        raise RecordError(whole.refusal)
    if whole.faults:
        raise FaultyBatch(Faults(whole.faulty.items(), whole.faults), whole.records)
    return Trial.loads(whole.state, plan, key=key) if whole.state else Trial(plan, key=key)


def gathered(batches: Iterable[pa.RecordBatch], *, whole: bool) -> Iterator[pa.Table]:
    """Small batches put together until folding them is worth it; all of them, if the partition is to be one batch."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= ROWS and not whole:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def key_for(plan: Plan, key: bytes | None) -> bytes | None:
    """The key that all workers share: the one given, a new one, or none if the plan has no bootstrap."""
    trial = Trial(plan, key=key)
    return None if plan.bootstrap is None else trial.key


def plan_columns(plan: Plan, found: Sequence[str]) -> list[str]:
    """The columns to take from a data frame that has these.

    Raises:
        RecordError: One is missing, or there twice.
    """
    wanted = wanted_by(plan).names
    require_columns(wanted, found)
    return list(wanted)
