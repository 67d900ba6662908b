"""Hides from foldaway what only POSIX has, in this process and those it starts: put this folder on the PYTHONPATH.

Other packages see the system as it is: what they do on Windows is theirs to test.
"""

from __future__ import annotations

import builtins
import fcntl
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

MODULES = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}

# https://docs.python.org/3/library/os.html, all that is marked "Availability: Unix" and in any use.
NAMES = {"execve", "fchmod", "fchown", "chown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getuid"}
NAMES |= {"killpg", "mkfifo", "nice", "openpty", "pread", "pwrite", "sched_getaffinity", "setsid", "statvfs", "sysconf"}
NAMES |= {"uname", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "environb", "fdatasync", "sync"}


class Instead(ModuleType):
    """A module, with other values for some names, and without others."""

    def __init__(self, real: ModuleType, hidden: set[str], **others: object) -> None:
        super().__init__(real.__name__)
        vars(self).update(others, _real=real, _hidden=hidden)

    def __getattr__(self, name: str) -> Any:
        if name in self._hidden:
            raise AttributeError(f"there is no {self.__name__}.{name} on this system")
        return getattr(self._real, name)


def locking(handle: int, mode: int, length: int) -> None:
    """As Windows has it: of one byte or more, and taken is a refused permission."""
    assert (mode, length) == (2, 1)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None


def hide() -> None:
    """From here on."""
    import_any = builtins.__import__
    instead: dict[str, Any] = {
        "os": Instead(os, NAMES, name="nt"),
        "sys": Instead(sys, set(), platform="win32"),
        "msvcrt": SimpleNamespace(locking=locking, LK_NBLCK=2),
    }

    def import_some(name: str, globals: Any = None, *rest: Any, **more: Any) -> Any:
        if ((globals or {}).get("__package__") or "").partition(".")[0] == "foldaway":
            if name in MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in instead:
                return instead[name]
        return import_any(name, globals, *rest, **more)

    builtins.__import__ = import_some


if __name__ == "sitecustomize":
    hide()
