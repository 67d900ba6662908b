"""A stream's saved file: the tallies, and how far in the stream they go, in one file written in one step.

The two can never disagree, so nothing is lost and nothing counts twice. The file holds no record and no key;
whoever compares two of its versions sees a cohort of records between them, for which the consumer cares, or the driver
of a Spark stream.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

from foldaway.errors import SourceError, StateError, instead_of
from foldaway.evidence.ledger import Ledger
from foldaway.keeping.disk import remove_traces, sync_folder
from foldaway.keeping.locks import locked
from foldaway.keeping.saved import Final, Saved, StreamPositions, is_encrypted, load, naming, of_kind
from foldaway.keeping.user_keys import FileKey
from foldaway.plan import Plan
from foldaway.trial import Trial

STATE = "state"


class StreamState(NamedTuple):
    """What is saved of a stream.

    Attributes:
        reached: How far it was read.
        trial: The trial's state, as `Trial.dumps` gives it; empty before the first cohort, and once the trial is
            closed.
        final: What is left of a closed trial.
        ledger: What happened in it.
    """

    reached: StreamPositions
    trial: bytes = b""
    final: Final | None = None
    ledger: Ledger = Ledger()

    @property
    def closed(self) -> bool:
        """Whether the trial has ended."""
        return self.final is not None

    def of(self, plan: Plan, key: bytes | None = None) -> Trial:
        """The trial, under the plan that made it; sealed and without tallies, if it is closed."""
        trial = Trial.loads(self.trial, plan, key=key) if self.trial else Trial(plan, key=key)
        trial.chronicle.ledger = self.ledger
        if self.closed:
            trial.seal(everywhere=False)
        return trial


class StreamFile(AbstractContextManager["StreamFile"]):
    """A stream's saved file, in a folder that one consumer, or one driver of a Spark stream, at a time has to itself.

    Args:
        folder: The folder; made, for its owner alone, if it is not there.

    Raises:
        SourceError: Another program has it, or it cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with StreamFile(Path(folder)) as file:
        ...         reached = StreamPositions("nats ORDERS", places={"": (17,)})
        ...         file.write(StreamState(reached, b"tallies"), FileKey("5a" * 16, bytes(16)))
        ...         read(file.folder, bytes(16)).reached.places
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
            remove_traces(folder / STATE)
            self._held = held.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another have it."""
        self._held.close()

    def of_stream(self, stream: str, key: bytes | None = None) -> StreamState:
        """What it holds of a stream; its beginning if nothing was written yet.

        Raises:
            SourceError: It holds another stream.
        """
        stored = read(self.folder, key) or StreamState(StreamPositions(stream))
        if (other := stored.reached.stream) != stream:
            raise SourceError(f"the store {self.folder} belongs to another stream ({other}); name another folder.")
        return stored

    def write(self, state: StreamState, key: FileKey | None) -> None:
        """Replace what it holds; when this returns, the new is there whatever crashes, and until then the old is.

        What is left of a closed trial has no key.
        """
        unwritten = "Nothing was acknowledged; when this is mended, the same command goes on."
        with instead_of(
            OSError,
            lambda error: StateError(f"the store {self.folder} cannot be written: {error.strerror}. {unwritten}"),
        ):
            Saved(state.trial, state.reached, state.final, state.ledger).save(self.folder / STATE, key)

    def store(self, reached: StreamPositions, trial: Trial) -> StreamState:
        """Write a trial, and how far its stream was read; of a sealed one what is left of it. What was written."""
        # Levels that are pooled in the state may still become common in memory.
        saved, key = (trial if trial.unfixed else trial.copy()).saved(reached)
        state = StreamState(reached, saved.state, saved.final, saved.ledger)
        self.write(state, key)
        trial.written(saved.ledger)
        return state


def is_closed(folder: Path) -> bool:
    """Whether only the effects are left of the trial in a folder; no key is needed to see that."""
    path = folder / STATE
    return path.exists() and not is_encrypted(path)


def read(folder: Path, key: bytes | None = None) -> StreamState | None:
    """What is saved in a folder, without taking it: a consumer may be at work there.

    Raises:
        StateError: What is there is damaged, or is not of a stream.
    """
    path = folder / STATE
    if not path.exists():
        return None
    saved = load(path, key)
    with naming(path):
        return StreamState(of_kind(saved.positions, StreamPositions), saved.state, saved.final, saved.ledger)
