"""Which files a state holds: kept beside the state, so that no file is folded twice and a changed one is noticed.

A file goes by its full name, size and time of last change, and by where it lies on the disk. All of these are kept as
hashes under a random salt: a file's name may say whom it is about. Nothing is made from a file's content, since the
hash of a short file could be undone by guessing the record in it.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from pathlib import Path

import msgspec

from foldaway.errors import SourceError, instead_of
from foldaway.keeping.disk import trouble

_LENGTH = 16


class FoldedFile(msgspec.Struct, array_like=True):
    """A file whose records are in the state.

    Attributes:
        stamp: Of its size and time of last change.
        place: Of these and its place on the disk, which it keeps under another name.
        deleted: Whether it was deleted: then another file may come under its name.
        leaving: Of the folder that it is to be deleted from, unless it is certain that it was.
        barren: Whether none of its records was folded, all being faulty: then it is never deleted, and may be mended.
    """

    stamp: bytes
    place: bytes
    deleted: bool = False
    leaving: bytes = b""
    barren: bool = False


class FilePositions(msgspec.Struct, tag="files"):
    """What is saved of the list: its salt, and the entries by the hash of the files' names."""

    salt: bytes
    files: dict[bytes, FoldedFile]


class FoldedFiles:
    """The files in a state.

    Args:
        positions: What was saved of it; a new one if left out.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "day1.csv")
        ...     _ = file.write_text("records")
        ...     folded = FoldedFiles()
        ...     folded.enter(file, folded.look(file))
        ...     FoldedFiles(folded.positions).is_folded(file)
        True
    """

    def __init__(self, positions: FilePositions | None = None) -> None:
        self.positions = FilePositions(secrets.token_bytes(_LENGTH), {}) if positions is None else positions
        entries = self.positions.files.values()
        self._places = {entry.place for entry in entries if entry.leaving or not entry.deleted}
        self._left = {entry.leaving for entry in entries if not entry.deleted}  # folders that files are to go from

    def __len__(self) -> int:
        return len(self.positions.files)

    def __contains__(self, path: Path) -> bool:
        """Whether a file of this name is in the state, there or not."""
        return self._name(path) in self.positions.files

    def look(self, path: Path) -> FoldedFile:
        """The entry that the file would have as it is now.

        Raises:
            SourceError: It is not there.
        """
        with instead_of(OSError, lambda error: SourceError(f"{path} {trouble(error)}")):
            now = os.stat(path)
        stamp = f"{now.st_size} {now.st_mtime_ns}"
        return FoldedFile(self._hash("stamp", stamp), self._hash("place", f"{stamp} {now.st_dev} {now.st_ino}"))

    def mark(self, path: Path) -> bytes:
        """The file as it is now in one hash: of its name, size and time of last change, and its place on the disk.

        Raises:
            SourceError: It is not there.
        """
        return self._hash("mark", self._name(path) + self.look(path).place)

    def is_folded(self, path: Path) -> bool:
        """Whether the file's records are in the state; if not, it is new.

        Raises:
            SourceError: It has changed since it was folded, or was folded under another name.
        """
        now, then = self.look(path), self.positions.files.get(self._name(path))
        if then is not None and then.stamp == now.stamp:
            return True
        if then is not None and not then.deleted and not then.barren:
            raise SourceError(
                f"{path} has changed since its records were folded, so some of them would count twice. Put new records "
                "into a file of another name; or fold everything anew, without --resume."
            )
        if now.place in self._places:
            raise SourceError(
                f"{path} was folded before under another name. Give it the old name again, or leave it out."
            )
        return False

    def enter(self, path: Path, entry: FoldedFile) -> None:
        """Note that the file's records are in the state."""
        self.positions.files[self._name(path)] = entry
        self._places.add(entry.place)

    def leave(self, path: Path) -> bool:
        """Note that the file is to be deleted; whether that is new."""
        entry, folder = self.positions.files[self._name(path)], self._name(path.parent, "folder")
        is_new = entry.leaving != folder
        entry.leaving = folder
        self._left.add(folder)
        return is_new

    def is_barren(self, path: Path) -> bool:
        """Whether none of the file's records was folded."""
        return self.positions.files[self._name(path)].barren

    def strike(self, path: Path) -> None:
        """Note that the file was deleted."""
        entry = self.positions.files[self._name(path)]
        entry.deleted, entry.leaving = True, b""
        self._places.discard(entry.place)

    def strike_gone(self, folder: Path) -> bool:
        """Note the deletion of what was to be deleted from a folder and is not there any more; whether any was.

        A run that was killed may have deleted files and not come to note it. Where they lay stays known: perhaps they
        were not deleted but have another name now.
        """
        mark = self._name(folder, "folder")
        if mark not in self._left or not folder.is_dir():
            return False
        gone = {
            name: entry for name, entry in self.positions.files.items() if entry.leaving == mark and not entry.deleted
        }
        for name in os.listdir(folder):
            gone.pop(self._name(folder / name), None)
        for entry in gone.values():
            entry.deleted = True
        return bool(gone)

    def _name(self, path: Path, kind: str = "name") -> bytes:
        return self._hash(kind, os.fsencode(os.path.realpath(path)))

    def _hash(self, kind: str, what: str | bytes) -> bytes:
        data = what.encode() if isinstance(what, str) else what
        person = f"foldaway-{kind}".encode()[:16]
        return blake2b(data, key=self.positions.salt, digest_size=_LENGTH, person=person).digest()
