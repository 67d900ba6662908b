"""One process at a time on a file: two that replaced it would each forget what the other has written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Seconds between two tries on Windows, which has no way to wait for a lock.
_PAUSE = 0.02


@contextmanager
def locked(path: Path, taken: Exception | None = None) -> Iterator[None]:
    """Hold a file for this process alone.

    The lock is the operating system's and ends with the process, however that ends; the file that it hangs on may stay
    behind then, and does no harm.

    Args:
        path: The file, which need not be there.
        taken: What to raise if another process holds it; None to wait until it does not.

    Raises:
        OSError: No lock can be made beside the file.
    """
    name = path.with_name(path.name + ".lock")
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock(handle, wait=taken is None)
        except (BlockingIOError, PermissionError):
            os.close(handle)
            assert taken is not None
            raise taken from None
        # Whoever held it before may have removed the file in between: then this lock keeps nobody out.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), name.stat()):
                break
        os.close(handle)
    with os.fdopen(handle):  # closing it is what lets the lock go
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no file that is open
                name.unlink()


def lock(handle: int, *, wait: bool) -> None:
    """Lock an open file until it is closed.

    Raises:
        BlockingIOError, PermissionError: It is taken, and this is not to wait; the second on Windows.
    """
    try:
        import fcntl
    except ImportError:
        _lock_windows(handle, wait=wait)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _lock_windows(handle: int, *, wait: bool) -> None:
    import msvcrt

    windows: Any = msvcrt  # which has no functions on other systems
    while True:
        try:
            windows.locking(handle, windows.LK_NBLCK, 1)
            return
        except PermissionError:
            if not wait:
                raise
        time.sleep(_PAUSE)
