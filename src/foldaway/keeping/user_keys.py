"""The keys of this machine's user: one for each design, so that trials of one user merge and resume without ceremony.

A trial with units needs a secret key. On one machine, for one user, it comes from a file of its own, outside of every
folder with records or tallies, that only the user can read. Another machine needs a copy (`--key`); a server has a key
store of its own. A trial's end destroys its file. One more key outlives all trials: the user signs ledgers with it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from foldaway.errors import SourceError, StateError
from foldaway.evidence.signing import Signer
from foldaway.keeping.disk import destroy_file, make_folder, sync_folder
from foldaway.keeping.secret import LENGTH, Secret, read_or_make_key


def state_home() -> Path:
    """Where this user's programs keep what outlives them: the XDG convention."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "foldaway")


class FileKey(NamedTuple):
    """What a trial's saved files are encrypted under: the fingerprint of its design, and its key."""

    design: str
    key: bytes

    def for_files(self) -> bytes:
        """The key for AES-256."""
        return Secret(self.key).of_files()

    @property
    def mark(self) -> str:
        """What tells it from other keys."""
        return Secret(self.key).mark().hex()


def user_file_key(design: str, held: bytes | None) -> FileKey:
    """The user's own key for a trial's saved files, which must outlive this process: looked up at every write.

    Args:
        design: The trial's design.
        held: The user's key as the trial has it, if it has used it before.

    Raises:
        SourceError: There is nowhere to keep it.
        StateError: It was destroyed since, so nobody could open what is written.
    """
    key = user_key(design, new=held is None)
    if _name(design) in _PROCESS_KEYS:
        raise SourceError(
            "a saved state is encrypted, and there is no place for this user's key: set XDG_STATE_HOME to a folder "
            "that may be written to, or give a key with key= (--key on the command line)."
        )
    if key is None or held not in (None, key):
        raise StateError(
            "the state cannot be saved, because this user's key for it is gone: a trial with the same name, arms and "
            "unit has ended. Nothing was written."
        )
    return FileKey(design, key)


def user_key(design: str, *, new: bool = True) -> bytes | None:
    """The user's key for a design; made if it may be and is not there, for this process alone if it cannot be kept.

    Raises:
        SourceError: There is a file that holds no key, such as a crash may leave where one was destroyed.
    """
    return _kept_key(_name(design), new)


def user_signer() -> Signer:
    """The user as who signs ledgers: with the same key for all trials."""
    key = _kept_key("signing.key", True)
    assert key is not None
    return _signer(key)


@cache
def _signer(key: bytes) -> Signer:
    return Signer(Secret(key).of_signing())


def _kept_key(name: str, new: bool) -> bytes | None:
    path = _place(name)
    if path is not None and (path.exists() or new):
        try:
            if not path.parent.is_dir():
                make_folder(path.parent)
                for folder in path.parents[1:4]:  # a state must not outlive its key in a power cut
                    sync_folder(folder)
            if path.exists() or os.access(path.parent, os.W_OK):
                return read_or_make_key(path, new=new)
        except OSError:
            pass  # nowhere to keep it
    return _PROCESS_KEYS.setdefault(name, secrets.token_bytes(LENGTH)) if new else _PROCESS_KEYS.get(name)


def destroy_user_key(design: str, mark: bytes) -> None:
    """Overwrite and remove the user's key for a design, if it is the one with this mark."""
    try:
        key = user_key(design, new=False)
    except SourceError:  # a crash has left it half destroyed
        key = None
    if key is not None and Secret(key).mark() != mark:
        return
    _PROCESS_KEYS.pop(_name(design), None)
    if (path := _place(_name(design))) is not None:
        with suppress(OSError):
            destroy_file(path)


def _name(design: str) -> str:
    return f"keys/{design[:32]}.key"


def _place(name: str) -> Path | None:
    try:
        return state_home() / name
    except RuntimeError:
        return None  # a user without a home


_PROCESS_KEYS: dict[str, bytes] = {}
