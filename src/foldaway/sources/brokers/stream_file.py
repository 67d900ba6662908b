"""A stream's saved file: the tallies, and how far in the stream they go, in one file written in one step.

The two can never disagree, so nothing is lost and nothing counts twice. The file holds no record and no key;
whoever compares two of its versions sees a cohort of records between them, for which the consumer cares, or the driver
of a Spark stream.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from foldaway.errors import SourceError, StateError, instead_of
from foldaway.keeping.disk import remove_draft, sync_folder
from foldaway.keeping.locks import locked
from foldaway.keeping.saved import Saved, StreamPositions, load, naming, of_kind
from foldaway.plan import Plan
from foldaway.trial import Trial

STATE = "state"


class StreamState(NamedTuple):
    """What is saved of a stream.

    Attributes:
        reached: How far it was read.
        trial: The trial's state, as `Trial.dumps` gives it; empty before the first cohort.
    """

    reached: StreamPositions
    trial: bytes = b""

    def of(self, plan: Plan, key: bytes | None = None) -> Trial:
        """The trial, under the plan that made it."""
        return Trial.loads(self.trial, plan, key=key) if self.trial else Trial(plan, key=key)


class StreamFile:
    """A stream's saved file, in a folder that one consumer, or one driver of a Spark stream, at a time has to itself.

    Args:
        folder: The folder; made, for its owner alone, if it is not there.

    Raises:
        SourceError: Another program has it, or it cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with StreamFile(Path(folder)) as file:
        ...         file.write(StreamState(StreamPositions("nats ORDERS", places={"": (17,)})))
        ...         file.read().reached.places
        {'': (17,)}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        taken = SourceError(f"another program has the store {folder}; each needs one of its own.")
        with (
            instead_of(OSError, lambda error: SourceError(f"the store {folder} cannot be used: {error.strerror}.")),
            ExitStack() as held,
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(folder.parent)
            held.enter_context(locked(folder / STATE, taken))
            # A consumer that was killed may have left a state less than a cohort apart from the next one (promise P2).
            remove_draft(folder / STATE)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another have it."""
        self._held.close()

    def read(self) -> StreamState | None:
        """What it holds; none if nothing was written yet."""
        return read(self.folder)

    def write(self, state: StreamState) -> None:
        """Replace what it holds; when this returns, the new is there whatever crashes, and until then the old is."""
        unwritten = "Nothing was acknowledged; when this is mended, the same command goes on."
        with instead_of(
            OSError,
            lambda error: StateError(f"the store {self.folder} cannot be written: {error.strerror}. {unwritten}"),
        ):
            Saved(state.trial, state.reached).save(self.folder / STATE, mode=0o600)


def read(folder: Path) -> StreamState | None:
    """What is saved in a folder, without taking it: a consumer may be at work there.

    Raises:
        StateError: What is there is damaged, or is not of a stream.
    """
    path = folder / STATE
    if not path.exists():
        return None
    saved = load(path)
    with naming(path):
        return StreamState(of_kind(saved.positions, StreamPositions), saved.state)
