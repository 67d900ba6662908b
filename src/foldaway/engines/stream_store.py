"""What a stream has come to: the tallies, and the last micro-batch that is in them, written in one step."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.disk import replace_file
from foldaway.errors import StateError
from foldaway.plan import Plan
from foldaway.state import pack, unpack
from foldaway.trial import Trial

FILE = "state"


class StreamState(msgspec.Struct):
    """The form on disk."""

    query: str
    batch: int
    trial: bytes


class Stored(NamedTuple):
    """A trial, and which micro-batches of which query it holds.

    Attributes:
        query: The query's identifier, which Spark keeps in its checkpoint.
        batch: The number of the last micro-batch in the trial; those before are in it, too.
        trial: The trial.
    """

    query: str
    batch: int
    trial: Trial


class StreamStore:
    """A folder with a state in it.

    Args:
        folder: The folder; made if it is not there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def read(self, plan: Plan | None = None, *, key: bytes | None = None) -> Stored | None:
        """What is stored, if anything.

        Raises:
            StateError: It is damaged, or of another plan or key.
        """
        path = self.folder / FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read the state {path}: {error.strerror}.") from None
        try:
            state = unpack(data, StreamState)
            return Stored(state.query, state.batch, Trial.loads(state.trial, plan, key=key))
        except StateError as error:
            told = str(error)
        raise StateError(f"{path}: {told}")

    def write(self, stored: Stored) -> None:
        """Replace what is stored, durably: a crash leaves the old state or the new one."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Durable before Spark forgets the batch.
            replace_file(self.folder / FILE, pack(StreamState(stored.query, stored.batch, stored.trial.dumps())))
        except OSError as error:
            told = error.strerror
        else:
            return
        raise StateError(f"cannot write the state in {self.folder}: {told}.")
