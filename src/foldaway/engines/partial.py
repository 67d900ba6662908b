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


class Wrapping:
    """Seals what passes between workers.

    Args:
        key: 32 bytes; new ones if left out.

    Example:
        >>> wrapping = Wrapping()
        >>> parcel = wrapping.wrap(b"tallies")
        >>> b"tallies" in parcel
        False
        >>> Wrapping(wrapping.key).unwrap(parcel)
        b'tallies'
    """

    def __init__(self, key: bytes | None = None) -> None:
        self.key = secrets.token_bytes(KEY_LENGTH) if key is None else key

    def __repr__(self) -> str:
        return "Wrapping: held"

    def wrap(self, plain: bytes) -> bytes:
        """Encrypt."""
        return seal(self.key, plain)

    def unwrap(self, parcel: bytes) -> bytes:
        """Decrypt what `wrap` gave, in whatever process."""
        with instead_of(BrokenSeal, StateError("a worker's tallies were damaged on their way; run the fold again.")):
            return unseal(self.key, parcel)


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

    def wrapped(self, wrapping: Wrapping) -> bytes:
        """As a parcel that can leave the worker."""
        return wrapping.wrap(msgspec.msgpack.encode(self))

    @classmethod
    def unwrapped(cls, parcel: bytes, wrapping: Wrapping) -> Partial:
        """From a parcel."""
        return msgspec.msgpack.decode(wrapping.unwrap(parcel), type=cls)


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
    state = b"" if faults or refusal else trial.exchanged(newcomers=True)
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
    state = b"" if faults or refusal or trial is None else trial.exchanged(newcomers=True)
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
