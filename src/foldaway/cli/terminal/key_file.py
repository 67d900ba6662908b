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
    try:
        if new and not path.exists():
            # Whole or not at all: half a key would stop whoever comes after a crash.
            make_file(path, f"{secrets.token_hex(LENGTH)}\n".encode())
    except FileExistsError:
        pass  # somebody was faster
    except OSError as error:
        raise SourceError(f"the key file {path} cannot be made: {error.strerror}.") from None
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except FileNotFoundError:
        raise SourceError(f"there is no key file {path}; the state needs the key that it was made with.") from None
    except OSError as error:
        raise SourceError(f"the key file {path} cannot be read: {error.strerror}.") from None
    except ValueError:
        key = b""
    if len(key) != LENGTH:
        raise SourceError(f"the key file {path} does not hold a key: {2 * LENGTH} hexadecimal digits.")
    return key
