"""What a partition comes to: a trial's state, or the faults for which the whole fold is refused.

A worker never raises: engines print the arguments of what failed into their logs, and try again what is bound to fail
again. Faults come back as counts, are added up like tallies, and are raised by whoever asked for the fold.

Engines also write what passes between workers to disks of their own: shuffle files, results too large for memory. The
state of a partition with few records says much about them. So a partial leaves its worker encrypted, and the key,
new in every run, is only ever in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from foldaway.errors import FoldawayError, RecordError, StateError, instead_of
from foldaway.keeping.sealing import KEY_LENGTH, BrokenSeal, seal, unseal
from foldaway.numerics.threads import one_core
from foldaway.plan import Plan
from foldaway.records.faults import Fault, Faults, FaultyBatch
from foldaway.sources.formats.chunk import ROWS, require_columns, wanted_by
from foldaway.trial import Trial


def travel_key() -> bytes:
    """A new key for what passes between the workers of one run."""
    return secrets.token_bytes(KEY_LENGTH)


def opened(parcel: bytes, key: bytes) -> bytes:
    """What was sealed under the run's key, in whatever process.

    Raises:
        StateError: It was damaged on its way.
    """
    with instead_of(BrokenSeal, StateError("a worker's tallies were damaged on their way; run the fold again.")):
        return unseal(key, parcel)


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

    def sealed(self, key: bytes) -> bytes:
        """As a parcel that can leave the worker, under the run's key."""
        return seal(key, msgspec.msgpack.encode(self))

    @classmethod
    def within(cls, parcel: bytes, key: bytes) -> Partial:
        """From a parcel."""
        return msgspec.msgpack.decode(opened(parcel, key), type=cls)

    @classmethod
    def of(cls, records: int, trial: Trial | None, faults: Faults, refusal: str) -> Partial:
        """Of a trial, unless some of its records were refused."""
        state = b"" if faults or refusal or trial is None else trial.exchanged(newcomers=True)
        return cls(records, state, refusal, dict(faults.records), list(faults))


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
    return Partial.of(records, trial, faults, refusal)


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
    return Partial.of(records, trial, faults, refusal)


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
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        small.append(batch)
        rows += batch.num_rows
        if rows >= ROWS and not whole:
            yield pa.Table.from_batches(small)
            small, rows = [], 0
    if rows:
        yield pa.Table.from_batches(small)


def key_for(plan: Plan, key: bytes | None) -> bytes | None:
    """The key that all workers share: the one given, or that of this machine's user; none if the plan needs none."""
    trial = Trial(plan, key=key)
    return trial.key if plan.keyed else None


def plan_columns(plan: Plan, names: Sequence[str]) -> list[str]:
    """The columns to take from a data frame whose columns have these names.

    Raises:
        RecordError: One is missing, or there twice.
    """
    wanted = wanted_by(plan).names
    require_columns(wanted, names)
    return list(wanted)
