"""A store in a folder: one SQLite file for each trial, for its owner alone, and without what was deleted.

The folder may hold an app's own files: those without such a name are not even opened.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from foldaway_device.errors import StateError
from foldaway_device.state import Held, State

# A file is the device's by its name alone, for what is in it may be damaged, and must go all the same.
_ENDING = ".foldaway-device"

# Seconds to wait for another process of the same device.
_PATIENCE = 10.0

# Seconds after its last change when a file goes that cannot be read, and so cannot say for how long it may be kept.
_UNREADABLE = 30 * 86_400.0

_PRAGMAS = (
    "journal_mode = TRUNCATE",  # the old pages in the journal go when the transaction ends
    "synchronous = FULL",
    "secure_delete = ON",  # what is deleted or replaced is overwritten
    "temp_store = MEMORY",
    "trusted_schema = OFF",
)


class FolderStore:
    """The states of one device, by trial.

    Args:
        folder: Made, for its owner alone, if it is not there.

    Raises:
        StateError: It is not private, or cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        with _in_our_words(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_private(self.folder)
        self._sweep()

    def file(self, trial: str) -> Path:
        """The file of a trial."""
        return self.folder / f"{trial}{_ENDING}"

    def trials(self) -> list[str]:
        """The trials of which something is kept; a name begins with a letter or a digit."""
        files = self.folder.glob(f"[A-Za-z0-9]*{_ENDING}")
        return [file.name.removesuffix(_ENDING) for file in files if file.is_file()]

    @contextmanager
    def changing(self, trial: str) -> Iterator[Held]:
        """A change of what is kept of a trial, in one transaction, which other processes of the device wait for."""
        file = self.file(trial)
        with _in_our_words(file), closing(_connect(file)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # which first undoes what a crash has left half done
            connection.execute("CREATE TABLE IF NOT EXISTS device (one INTEGER PRIMARY KEY CHECK (one = 1), kept TEXT)")
            row = connection.execute("SELECT kept FROM device").fetchone()
            try:
                held = Held(State.loads(row[0]) if row else None)
            except (ValueError, TypeError) as error:
                raise sqlite3.DatabaseError from error
            yield held
            if held.state is not None and (text := held.state.dumps()) != (row and row[0]):
                connection.execute("INSERT OR REPLACE INTO device VALUES (1, ?)", (text,))
            connection.execute("COMMIT")  # closed without one, the transaction has never been

    def destroy(self, trial: str) -> None:
        """Overwrite a damaged file, and put one with the mark alone in its place."""
        file = self.file(trial)
        with _in_our_words(file):
            for path in (file.with_name(f"{file.name}-journal"), file):
                with suppress(FileNotFoundError):
                    _overwrite(path)
                    path.unlink()
        with self.changing(trial) as held:
            held.state = State("", stage="forgotten")

    def _sweep(self) -> None:
        """Delete what has been kept for too long, of all trials."""
        now = time.time()
        for trial in self.trials():
            try:
                with self.changing(trial) as held:
                    if held.state is not None:
                        held.state.expire(now)
            except StateError:  # whoever opens that trial will be told, until it is here for too long
                with suppress(FileNotFoundError):
                    if now - self.file(trial).stat().st_mtime > _UNREADABLE:
                        self.destroy(trial)


def _connect(file: Path) -> sqlite3.Connection:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    uri = f"file:{quote(str(file.absolute()))}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _in_our_words(path: Path) -> Iterator[None]:
    """Errors of the disk and of SQLite in words of ours, which quote nothing that is stored."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        kind = getattr(error, "sqlite_errorname", None) or getattr(error, "strerror", None) or type(error).__name__
        raise StateError(
            f"{path} cannot be used ({kind}): it is locked, or the disk is full, or it is damaged; then the device's "
            "forget() deletes it."
        ) from None


def _require_private(folder: Path) -> None:
    """Refuse a folder that others may look into, where a folder's mode tells."""
    if os.name != "posix":
        return
    found = folder.stat()
    if found.st_mode & 0o077:
        raise StateError(f"others may look into {folder}: say chmod 700 {folder}, or choose another folder.")
    if found.st_uid != os.geteuid():
        raise StateError(f"{folder} belongs to another user: run this as that user, or choose a folder of your own.")
