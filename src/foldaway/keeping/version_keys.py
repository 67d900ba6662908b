"""A file of keys, one for each version of what is overwritten elsewhere: made before it, destroyed after the next one.

A database, its write-ahead log and its replicas keep former versions for as long as they like. Sealed under a key that
is gone, such a version is noise, whoever else's key is known. So these keys lie outside the database, in slots of one
size that are overwritten in place:

    magic (16 bytes) | identity (16) | keys (32 each; an empty slot is zeros)

A key's name is its slot and a hash of it, so a slot that was given to another key in between is not mistaken. Several
servers may share a file: whoever changes it locks it, and whoever reads it opens it anew, as network file systems need.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from foldaway.errors import Unavailable, VaultError, instead_of
from foldaway.keeping.disk import make_file, make_folder
from foldaway.keeping.locks import lock
from foldaway.keeping.planted import require_own

MAGIC = b"FOLDAWAY-KEYS\0\0\1"
LENGTH = 32
NAME = 12
"""How many bytes a key's name has: its slot, and a hash."""

_EMPTY = bytes(LENGTH)
_ROOM = 4096  # bytes, so that the file seldom grows


class VersionKey(NamedTuple):
    """A key, and the name under which it is found again."""

    name: bytes
    key: bytes


class VersionKeys:
    """The keys in a file.

    Args:
        file: Where they are.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     keys = VersionKeys(Path(folder, "version.keys"))
        ...     begun = keys.make()
        ...     before, now = keys.new(), keys.new()
        ...     keys.destroy([before.name])
        ...     keys.find(before.name), keys.find(now.name) == now.key
        (None, True)
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def make(self) -> bool:
        """Begin a file, for its owner alone, if there is none, or an empty one; whether it was empty."""
        with self._trouble():
            make_folder(self.file.parent)
            require_own(self.file, VaultError)
            with suppress(FileExistsError):
                make_file(self.file, _beginning())
            with self._held() as handle:
                empty = os.fstat(handle).st_size == 0
                if empty:
                    os.pwrite(handle, _beginning(), 0)
                    os.fsync(handle)
        return empty

    def identity(self) -> bytes:
        """Random bytes that tell this file from every other.

        Raises:
            VaultError: It is no such file.
        """
        head = self._read(0)
        if not head.startswith(MAGIC) or len(head) != LENGTH:
            raise VaultError(f"{self.file} is not a file of version keys: name the right one, or move this one away.")
        return head[len(MAGIC) :]

    def new(self) -> VersionKey:
        """A key that is on the disk before anything is sealed under it."""
        key = secrets.token_bytes(LENGTH)
        with self._held() as handle:
            slots = _slots(handle)
            place = next((i for i, slot in enumerate(slots) if slot == _EMPTY), len(slots))
            os.pwrite(handle, key if place < len(slots) else key + bytes(_ROOM), place * LENGTH)
            os.fsync(handle)  # also of what was destroyed since the last one
        return VersionKey(_name(place, key), key)

    def find(self, name: bytes) -> bytes | None:
        """The key of this name; none if it was destroyed."""
        place = int.from_bytes(name[:4], "big")
        key = self._read(place)
        return key if place and len(key) == LENGTH and key != _EMPTY and _name(place, key) == name else None

    def destroy(self, names: Iterable[bytes]) -> None:
        """Overwrite keys: for whoever reads the file at once, on the disk with the next key or `keep`."""
        names = list(names)
        if names:
            with self._held() as handle:
                for name in names:
                    place = int.from_bytes(name[:4], "big")
                    if _name(place, os.pread(handle, LENGTH, place * LENGTH)) == name:
                        os.pwrite(handle, _EMPTY, place * LENGTH)

    def keep(self, names: Iterable[bytes]) -> None:
        """Overwrite all keys but these, and wait until that is on the disk."""
        kept = set(names)
        with self._held() as handle:
            for place, slot in enumerate(_slots(handle)):
                if place and slot != _EMPTY and _name(place, slot) not in kept:
                    os.pwrite(handle, _EMPTY, place * LENGTH)
            os.fsync(handle)

    def _read(self, place: int) -> bytes:
        with self._trouble(), self.file.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), LENGTH, place * LENGTH)

    @contextmanager
    def _held(self) -> Iterator[int]:
        """The file, for this program alone."""
        with self._trouble(), self.file.open("r+b", buffering=0) as file:
            lock(file.fileno(), wait=True)  # which goes as the file is closed
            yield file.fileno()

    def _trouble(self) -> instead_of:
        unusable = f"the version keys in {self.file} cannot be used: {{}}. Try again when this is mended."
        return instead_of(OSError, lambda error: Unavailable(unusable.format(error.strerror)))


def _beginning() -> bytes:
    return (MAGIC + secrets.token_bytes(LENGTH - len(MAGIC))).ljust(_ROOM, b"\0")


def _slots(handle: int) -> list[bytes]:
    """All that the file holds, its head first."""
    data = os.pread(handle, os.fstat(handle).st_size, 0)
    return [data[i : i + LENGTH] for i in range(0, len(data) - len(data) % LENGTH, LENGTH)]


def _name(place: int, key: bytes) -> bytes:
    return place.to_bytes(4, "big") + blake2b(key, digest_size=NAME - 4, person=b"foldaway-keyname").digest()
