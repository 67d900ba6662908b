"""A device's state on its disk: one SQLite file for each trial, for its owner alone, and without what was deleted.

``NAME.foldaway-device`` holds the state. ``NAME.foldaway-forgotten`` is what is left when the device has forgotten the
trial: the plan's fingerprint and nothing else, so that the same person is not enrolled a second time, perhaps in
another arm. It is written before anything is deleted, so a deletion that was cut short is ended by whoever opens the
folder next. The folder may hold an app's own files: those without such a name are not even opened.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from foldaway.errors import PlanError, StateError, instead_of
from foldaway.federated.device.state import DeviceState, Forgotten
from foldaway.keeping.disk import destroy_file, open_sqlite, replace_file
from foldaway.plan import Plan

# Seconds to wait for another process of the same device.
_PATIENCE = 10.0

# Seconds after its last change when a file goes that cannot be read, and so cannot say for how long it may be kept.
_UNREADABLE = 30 * 86_400.0

# A file is the device's by its name alone, for what is in it may be damaged, and must go all the same.
_STATE, _MARK = ".foldaway-device", ".foldaway-forgotten"

_PRAGMAS = (
    "journal_mode = TRUNCATE",  # the old pages in the journal go when the transaction ends
    "synchronous = FULL",
    "secure_delete = ON",  # what is deleted or replaced is overwritten
    "temp_store = MEMORY",
    "trusted_schema = OFF",
)

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS device (one INTEGER PRIMARY KEY CHECK (one = 1), kept BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, row BLOB NOT NULL, message BLOB)",
    "CREATE TABLE IF NOT EXISTS messages (number BLOB PRIMARY KEY, message BLOB NOT NULL)",
)


class LocalStore:
    """The state of a device in one trial.

    Args:
        folder: The device's folder; made, for its owner alone, if it is not there.
        name: The trial's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        require_private(folder)
        self._file = folder / f"{name}{_STATE}"
        self._tombstone = folder / f"{name}{_MARK}"
        self._connection: sqlite3.Connection | None = None
        sweep(folder)

    def traces(self) -> str:
        """What is here of the trial, for a person."""
        return " and ".join(str(path) for path in (self._file, self._tombstone) if path.exists())

    @property
    def forgotten(self) -> str | None:
        """The fingerprint of the plan that was forgotten, if one was; empty if the file of its state was damaged."""
        try:
            return self._tombstone.read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    def plan(self) -> Plan | None:
        """The plan that is kept here, if there is one."""
        if not self._file.exists():
            return None
        try:
            with self.changing() as state:
                return Plan.loads(state.plan)
        except Forgotten:
            return None

    def begin(self, state: DeviceState) -> None:
        """Keep this state, unless one is kept already."""
        with _in_our_words(self._file), closing(_connect(self._file, new=True)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _SCHEMA:
                connection.execute(table)
            connection.execute("INSERT OR IGNORE INTO device VALUES (1, ?)", (msgspec.msgpack.encode(state),))
            connection.execute("COMMIT")

    @contextmanager
    def changing(self) -> Iterator[DeviceState]:
        """The state, to be changed in one transaction, which other processes of the device wait for."""
        if self._connection is not None:
            raise RuntimeError("a change within a change")
        if not self._file.exists():
            raise Forgotten
        with _transaction(self._file) as (self._connection, state):
            try:
                yield state
            finally:
                self._connection = None

    def add_row(self, row: bytes) -> None:
        """Keep a record's row."""
        self._run("INSERT INTO rows (row) VALUES (?)", row)

    def unsent(self) -> list[bytes]:
        """The rows that no message covers."""
        return [row for (row,) in self._run("SELECT row FROM rows WHERE message IS NULL ORDER BY id")]

    def send_later(self, number: bytes, message: bytes) -> None:
        """Keep a message that covers all the rows that none covered before."""
        self._run("UPDATE rows SET message = ? WHERE message IS NULL", number)
        self._run("INSERT INTO messages VALUES (?, ?)", number, message)

    def waiting(self) -> list[tuple[bytes, bytes]]:
        """The messages of which it is not known that they are durable."""
        return [(number, message) for number, message in self._run("SELECT * FROM messages ORDER BY rowid")]

    def settle(self, number: bytes, *, durable: bool) -> None:
        """The message is durable, or it will never be: then its rows are dropped."""
        self._run("DELETE FROM messages WHERE number = ?", number)
        if not durable:
            self._run("DELETE FROM rows WHERE message = ?", number)

    def covered(self) -> list[bytes]:
        """The rows that durable messages cover."""
        command = "SELECT row FROM rows WHERE message IS NOT NULL AND message NOT IN (SELECT number FROM messages)"
        return [row for (row,) in self._run(command)]

    def drop_records(self, *, messages: bool = True) -> None:
        """Delete all rows, and all messages unless these are to stay."""
        self._run("DELETE FROM rows")
        if messages:
            self._run("DELETE FROM messages")

    def _run(self, command: str, *values: Any) -> list[tuple[Any, ...]]:
        assert self._connection is not None, "only within changing()"
        return self._connection.execute(command, values).fetchall()

    def erase(self, fingerprint: str) -> None:
        """Delete everything but the mark that the trial was forgotten, also where the file is damaged."""
        if not self._file.exists():
            return
        # From here on it will be done, whatever happens.
        replace_file(self._tombstone, fingerprint.encode(), private=True)
        with suppress(Forgotten, StateError), self.changing():
            # For another process that has the file open: it finds nothing, and stops before it writes.
            for table in ("rows", "messages", "device"):
                self._run(f"DELETE FROM {table}")
        _remove(self._file)


def sweep(folder: Path, now: float | None = None) -> None:
    """End deletions that were cut short, and delete the records of all trials that have been kept for too long."""
    for tombstone in _own(folder, _MARK):
        _remove(tombstone.with_suffix(_STATE))
    now = time.time() if now is None else now
    for file in _own(folder, _STATE):
        with suppress(Forgotten, FileNotFoundError):  # by another process, at this moment
            try:
                _drop_expired(file, now)
            except (StateError, PlanError):  # whoever opens that trial will be told, until it is here for too long
                if now - file.stat().st_mtime > _UNREADABLE:
                    replace_file(file.with_suffix(_MARK), b"", private=True)
                    _remove(file)


def _own(folder: Path, kind: str) -> list[Path]:
    """The device's files of one kind; the name of a trial begins with a letter or a digit."""
    return [path for path in folder.glob(f"[A-Za-z0-9]*{kind}") if path.is_file()]


def _drop_expired(file: Path, now: float) -> None:
    with _transaction(file) as (connection, state):
        plan = Plan.loads(state.plan)
        if not state.expired(plan.privacy.retention, now):
            return
        if state.stage == "leaving":  # it was told to forget, and has waited for its report long enough
            replace_file(file.with_suffix(_MARK), plan.fingerprint.encode(), private=True)
        state.expire(waiting=connection.execute("SELECT 1 FROM messages").fetchone() is not None)
        connection.execute("DELETE FROM rows")
        connection.execute("DELETE FROM messages")
    if file.with_suffix(_MARK).exists():
        _remove(file)


@contextmanager
def _transaction(file: Path) -> Iterator[tuple[sqlite3.Connection, DeviceState]]:
    """The state in a file, which is stored as it then is, if all goes well.

    Raises:
        Forgotten: It was deleted, or the file was made and not yet written to.
    """
    with _in_our_words(file), closing(_connect(file)) as connection:
        connection.execute("BEGIN IMMEDIATE")  # which first undoes what a crash has left half done
        made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'device'").fetchone()
        row = connection.execute("SELECT kept FROM device").fetchone() if made else None
        if row is None:
            raise Forgotten
        state = msgspec.msgpack.decode(row[0], type=DeviceState)
        yield connection, state
        if (changed := msgspec.msgpack.encode(state)) != row[0]:
            connection.execute("UPDATE device SET kept = ?", (changed,))
        connection.execute("COMMIT")  # closed without one, the transaction has never been


def _connect(file: Path, *, new: bool = False) -> sqlite3.Connection:
    if new:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    return open_sqlite(file, _PRAGMAS, _PATIENCE)


def _in_our_words(file: Path) -> instead_of:
    """Errors of the disk and of SQLite in words of ours; a file that has gone was forgotten."""

    def refusal(error: Exception) -> Exception:
        kind = getattr(error, "sqlite_errorname", type(error).__name__)
        if not file.exists():
            return Forgotten()
        return StateError(
            f"the device's file {file} cannot be used ({kind}): it is locked, or the disk is full, or it is damaged; "
            "then the device's forget() deletes it."
        )

    return instead_of((sqlite3.Error, msgspec.MsgspecError, OSError), refusal)


def require_private(folder: Path) -> None:
    """Make a folder for its owner alone, or refuse one that others may look into, where a folder's mode tells.

    Raises:
        StateError: It is not private, or cannot be used.
    """
    unusable = "the device's folder {} cannot be used: {}."
    with instead_of(OSError, lambda error: StateError(unusable.format(folder, error.strerror))):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shared = os.name == "posix" and folder.stat().st_mode & 0o077
        theirs = os.name == "posix" and folder.stat().st_uid != os.geteuid()
    if shared:
        raise StateError(f"others may look into {folder}: say chmod 700 {folder}, or choose another folder.")
    if theirs:
        raise StateError(f"{folder} belongs to another user: run this as that user, or choose a folder of your own.")


def _remove(file: Path) -> None:
    """Overwrite a database and what a crash may have left of its journal, and remove both."""
    for path in (file.with_name(file.name + "-journal"), file):
        destroy_file(path)
