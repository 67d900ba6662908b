"""The durable store of a stream: the tallies, and how far in the stream they go, in one file written in one step.

The two can never disagree, so nothing is lost and nothing counts twice. The file holds no record and no bootstrap key;
whoever compares two of its versions sees a cohort of records between them, for which the consumer cares, or the driver
of a Spark stream.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from foldaway.errors import SourceError, StateError
from foldaway.keeping.disk import remove_draft, replace_file, sync_folder
from foldaway.keeping.state import MAGIC, pack, unpack
from foldaway.plan import Plan
from foldaway.sources.brokers.broker import Place
from foldaway.trial import Trial

STATE, LOCK = "state", "lock"


class Stored(msgspec.Struct, frozen=True):
    """What a store holds.

    Attributes:
        stream: The stream that the positions are of.
        identity: What tells it from another of the same name.
        positions: The place of the last message in the tallies, for each part of the stream.
        trial: The trial's state, as `Trial.dumps` gives it; empty before the first cohort.
        skipped: Faulty messages that were passed over.
        missed: Messages that were gone from the broker before they were read.
        left_out: Records short of a cohort that were left out at the close.
        closed: Whether the trial has ended.
    """

    stream: str
    identity: str = ""
    positions: dict[str, Place] = {}
    trial: bytes = b""
    skipped: int = 0
    missed: int = 0
    left_out: int = 0
    closed: bool = False

    def of(self, plan: Plan, key: bytes | None = None) -> Trial:
        """The trial, under the plan that made it."""
        if self.trial:
            return Trial.loads(self.trial, plan, key=key)
        return Trial(plan, key=key)


class Store:
    """A folder that one consumer, or one driver of a Spark stream, at a time has to itself.

    Args:
        folder: The folder; made, for its owner alone, if it is not there.

    Raises:
        SourceError: Another program has it, or it cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Store(Path(folder)) as store:
        ...         store.write(Stored("nats ORDERS", positions={"": (17,)}))
        ...         store.read().positions
        {'': (17,)}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(folder.parent)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SourceError(f"the store {folder} cannot be used: {error.strerror}.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SourceError(f"another program has the store {folder}; each needs one of its own.") from None
        # A consumer that was killed may have left a state less than a cohort apart from the next one (promise P2).
        try:
            remove_draft(folder / STATE)
        except OSError as error:
            os.close(self._lock)
            raise SourceError(f"the store {folder} cannot be used: {error.strerror}.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another have it; not to be called twice."""
        os.close(self._lock)  # which unlocks it, as the end of the process does, however it ends

    def read(self) -> Stored | None:
        """What the folder holds; none if nothing was written yet."""
        return read(self.folder)

    def write(self, stored: Stored) -> None:
        """Replace what it holds; when this returns, the new is there whatever crashes, and until then the old is."""
        try:
            replace_file(self.folder / STATE, pack(stored), mode=0o600)
        except OSError as error:
            reason = error.strerror
        else:
            return
        raise StateError(
            f"the store {self.folder} cannot be written: {reason}. Nothing was acknowledged; when this is mended, the "
            "same command goes on."
        )


def read(folder: Path) -> Stored | None:
    """What a store's folder holds, without taking it: a consumer may be at work there.

    Raises:
        StateError: What is there is damaged, or is no store.
    """
    path = folder / STATE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"cannot read the store {folder}: {error.strerror}.") from None
    try:
        return unpack(data, Stored)
    except StateError as error:
        told = str(error)
    if data.startswith(MAGIC) and "cannot be decoded" in told:
        told = "it holds a state of another kind; name another folder."
    raise StateError(f"{path}: {told}")
