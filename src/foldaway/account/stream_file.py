"""A stream's saved file, in a folder of its own: for the consumer of a broker, and the driver of a Spark stream."""

from __future__ import annotations

from pathlib import Path

from foldaway.account.account import Durable
from foldaway.account.trial_file import TrialFile
from foldaway.errors import SourceError, instead_of
from foldaway.keeping.disk import sync_folder
from foldaway.keeping.saved import StreamPositions, is_encrypted, load
from foldaway.plan import Plan
from foldaway.trial import Trial

STATE = "state"


class StreamFile(TrialFile[StreamPositions]):
    """The saved file of a trial that is fed by a stream.

    Args:
        folder: Where it is; made, for its owner alone, if it is not there.
        plan: The plan.
        stream: The stream's name.
        key: The trial's key; if left out, that of this machine's user.

    Raises:
        SourceError: The folder cannot be made.
        StateError: Another program has it.

    Example:
        >>> import tempfile
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with StreamFile(Path(folder), plan, "nats ORDERS", key=bytes(16)) as store:
        ...         durable = store.read()
        ...         _ = store.write(durable, durable.tallies, StreamPositions("nats ORDERS", places={"": (17,)}))
        ...         store.read().reached.places
        {'': (17,)}
    """

    def __init__(self, folder: Path, plan: Plan, stream: str, *, key: bytes | None = None) -> None:
        self.folder = folder
        with instead_of(OSError, lambda error: SourceError(f"the store {folder} cannot be used: {error.strerror}.")):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(folder.parent)
            super().__init__(folder / STATE, plan, StreamPositions(stream), key=key, resume=folder / STATE)

    def read(self) -> Durable[Trial, StreamPositions]:
        """What is saved of the stream; of a trial that has ended, one that has ended, too, and has no tallies.

        Raises:
            SourceError: It is of another stream.
        """
        durable = self._ended() if has_ended(self.folder) else super().read()
        if (other := durable.reached.stream) != self._beginning.stream:
            raise SourceError(f"the store {self.folder} belongs to another stream ({other}); name another folder.")
        return durable

    def _ended(self) -> Durable[Trial, StreamPositions]:
        saved, trial = load(self.path), Trial(self._plan, key=self._key)
        trial.chronicle.ledger = saved.ledger
        trial.conclude(without_effects=True)  # its ledger has ended before
        return Durable(trial, self._beginning if saved.positions is None else self._its(saved.positions))


def has_ended(folder: Path) -> bool:
    """Whether only the effects are left of the trial in a folder; no key is needed to see that."""
    path = folder / STATE
    return path.exists() and not is_encrypted(path)
