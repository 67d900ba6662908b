"""One run at a time on a saved file: two would each forget what the other has folded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foldaway.errors import StateError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the saved file for this process alone.

    The lock is the operating system's and ends with the process, however that ends; the file that it hangs on may stay
    behind then, and does no harm.

    Raises:
        StateError: Another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # not on this operating system: there, take care yourself
        yield
        return
    name = path.with_name(path.name + ".lock")
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StateError(f"another run is saving to {path}; wait until it has ended.") from None
        # Whoever held it before may have removed the file in between: then this lock keeps nobody out.
        if name.exists() and os.path.samestat(os.fstat(handle), name.stat()):
            break
        os.close(handle)
    with os.fdopen(handle):  # closing it is what lets the lock go
        try:
            yield
        finally:
            name.unlink(missing_ok=True)
