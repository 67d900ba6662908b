"""The bootstrap's key in a file of its own, apart from the state and readable by its owner alone."""

from __future__ import annotations

import secrets
from pathlib import Path

from foldaway.errors import SourceError
from foldaway.keeping.disk import make_file
from foldaway.keeping.secret import LENGTH


def read_or_make(path: Path, *, new: bool = True) -> bytes:
    """The key in the file, as hexadecimal text; a new one, written there, if there is no file and one may be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "trial.key")
        ...     read_or_make(file) == read_or_make(file), oct(file.stat().st_mode & 0o777)
        (True, '0o600')
    """
    if not new and not path.exists():
        raise SourceError(f"there is no key file {path}; the state needs the key that it was made with.")
    if path.exists():
        return _read(path)
    try:
        return _make(path)
    except FileExistsError:  # somebody was faster
        return _read(path)
    except OSError as error:
        raise SourceError(f"the key file {path} cannot be made: {error.strerror}.") from None


def _make(path: Path) -> bytes:
    """A new key, in the file whole or not at all: half a key would stop whoever comes after a crash."""
    key = secrets.token_bytes(LENGTH)
    make_file(path, f"{key.hex()}\n".encode())
    return key


def _read(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise SourceError(f"the key file {path} cannot be read: {error.strerror}.") from None
    except ValueError:
        key = b""
    if len(key) != LENGTH:
        raise SourceError(f"the key file {path} does not hold a key: {2 * LENGTH} hexadecimal digits.")
    return key
