"""Files that outlive a crash, and files of which nothing does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import sqlite3


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are not there, for their owner alone, whatever the umask is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file in one step and wait until it is on the disk: a crash leaves the old file or the new one.

    A private file is for its owner alone, and what it held before is overwritten in place, where the file system has
    hard links. A crash may leave that beside the new file, or a draft of the new one beside the old: the next write
    overwrites them, or `remove_traces`, before anything else is done with a file of which two versions tell too much.
    """
    draft, former = _draft_of(path), _former_of(path)
    try:
        _write(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666), data)
        if private:
            destroy_file(former)
            with suppress(OSError):  # there is nothing yet, or no hard link
                os.link(path, former)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):  # what went wrong is told, not that this does, too
            try:
                destroy_file(draft)
            finally:
                draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    if private:
        destroy_file(former)


def remove_traces(path: Path) -> None:
    """Overwrite and remove what a crash in the midst of `replace_file` has left; nobody may be writing the file."""
    for left in (_draft_of(path), _former_of(path)):
        with suppress(IsADirectoryError):
            destroy_file(left)


def read_file(path: Path, size: int = -1) -> bytes:
    """The first bytes of a file, or all: of one version, though it may be replaced meanwhile."""
    data = b""
    for _ in range(20):  # some file systems number a file anew each time
        with path.open("rb") as file:
            data = file.read(size)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # or what was read may be overwritten
                break
    return data


def make_file(path: Path, data: bytes) -> None:
    """Write a new file, for its owner alone, whole or not at all.

    Raises:
        FileExistsError: There is one; it stays as it is.
    """
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        _write(handle, data)
        os.link(draft, path)  # unlike a rename, this replaces nothing
    finally:
        os.unlink(draft)
    sync_folder(path.parent)


def overwrite_file(path: Path, data: bytes) -> None:
    """Write over a file in place, so that no other block keeps what it held; with data of the same length."""
    _write(os.open(path, os.O_WRONLY), data)


def destroy_file(path: Path) -> None:
    """Overwrite a file, then remove it; nothing happens if it is not there."""
    with suppress(FileNotFoundError):
        overwrite_file(path, bytes(path.stat().st_size))
        path.unlink()
        sync_folder(path.parent)


def open_sqlite(file: Path, pragmas: Iterable[str], patience: float) -> sqlite3.Connection:
    """A connection to a SQLite file that is there, with its settings made; transactions are begun by hand.

    Raises:
        sqlite3.Error: There is none, or it is damaged.
    """
    import sqlite3  # not for those who never open one

    # mode=rw: a file that has gone is an error, not a new database.
    uri = f"file:{quote(str(file.absolute()))}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def trouble(error: OSError) -> str:
    """What the operating system refused, in plain words."""
    match error:
        case FileNotFoundError():
            return "is not there; it may have been moved or deleted since it was listed"
        case PermissionError():
            return "may not be read; check its permissions"
        case IsADirectoryError():
            return "is a folder; name the files in it"
        case _:
            return "cannot be opened; check that the disk or the share it lies on can be reached"


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on the disk: only then does a new name outlive a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _draft_of(path: Path) -> Path:
    return path.with_name(path.name + ".draft")


def _former_of(path: Path) -> Path:
    return path.with_name(path.name + ".former")


def _write(handle: int, data: bytes) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
