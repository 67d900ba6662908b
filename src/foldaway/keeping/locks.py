"""One process at a time on a file: two that replaced it would each forget what the other has written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
    try:
        import fcntl
    except ImportError:  # not on this operating system: there, take care yourself
        yield
        return
    name = path.with_name(path.name + ".lock")
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if taken is None else fcntl.LOCK_NB))
        except BlockingIOError:
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
            name.unlink(missing_ok=True)
