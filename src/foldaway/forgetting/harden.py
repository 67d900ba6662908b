"""A process in which nothing remains of what it has freed.

Python, NumPy, Arrow and the C library all keep freed memory for the next time, with its contents. `harden` starts the
process again in an environment where freed memory is overwritten at once, and shuts the ways by which memory reaches
a disk. One gap is known: of a block that the C library joins to a free one after it, the last eight bytes stay until
they are used again, and NumPy's arrays are such blocks. On an idle machine nothing of it was found. With four servers
on two cores, one or two of 20,000 outcomes were found in half of the runs.

`forget_now` empties the few places that no setting reaches. The reasons are measured: `tests/canary.py` plants
identifiers and outcomes in requests and searches the server's memory for them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from foldaway.numerics.linalg import overwrite_working_memory

MARK = "FOLDAWAY_HARDENED"
"""The environment has it once the process was started again."""

# In brackets, how many of 20,000 planted identifiers and outcomes one second leaves behind without the measure alone.
ENVIRONMENT = {
    # Python overwrites what it frees, all of it (2,353 and 979). With plain `malloc` the C library would do it, which
    # leaves the last eight bytes of a block as they are, and that is where a float has its value (0 and 48).
    "PYTHONMALLOC": "malloc_debug",
    # The C library overwrites what C and C++ free: Arrow's buffers, those of zlib, zstd and OpenSSL (484 and 1).
    "MALLOC_PERTURB_": "165",
    # Arrow's own allocator, mimalloc, does not overwrite (4,108 and 3,002).
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # The loader finds a library's function at its first call, and saves the processor's registers on the stack
    # meanwhile: in one run of six, 32 bytes of a record that was being copied stayed there.
    "LD_BIND_NOW": "1",
}

# Small blocks go first to a cache that the C library has for each thread, and are not overwritten (0 and 173).
_TUNABLE = "glibc.malloc.tcache_count"


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with what a hardened process needs.

    Example:
        >>> hardened = environment({"HOME": "/root", "GLIBC_TUNABLES": "glibc.malloc.arena_max=2"})
        >>> hardened["HOME"], hardened["GLIBC_TUNABLES"]
        ('/root', 'glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0')
    """
    others = [part for part in environ.get("GLIBC_TUNABLES", "").split(":") if part and not part.startswith(_TUNABLE)]
    tunables = ":".join([*others, f"{_TUNABLE}=0"])
    return {**environ, **ENVIRONMENT, "GLIBC_TUNABLES": tunables}


def harden() -> list[str]:
    """Start the process again, once, where freed memory is overwritten; then keep its memory off every disk.

    The process keeps its number, its arguments and its open standard streams. Call it first of all: nothing that has
    happened before is left after it.

    Returns:
        What could not be done here, a sentence each.
    """
    wanted = environment(os.environ)
    if MARK not in os.environ and wanted != dict(os.environ) and os.name == "posix":
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**wanted, MARK: "1"})
    return [sentence for sentence in (_overwritten(), without_dumps(), _locked()) if sentence]


def settle() -> None:
    """Once the program is loaded: take what lives as long as the process out of the search for garbage.

    It makes `forget_now` some hundred times faster. Not while a request is under way, which would be kept.
    """
    gc.collect()
    gc.freeze()


def forget_now() -> None:
    """Overwrite what freed records have left in the calling thread's caches; call it in the thread that folded."""
    # Errors hold on to the frames they passed through, in circles; and a full collection empties Python's own lists of
    # freed floats, which keep their values (0 and 47).
    gc.collect()
    _overwrite_small_arrays()
    overwrite_working_memory()


_CACHED_SIZES = 1024
_CACHED_OF_A_SIZE = 7


def _overwrite_small_arrays() -> None:
    """NumPy keeps up to seven blocks of every size below 1024 bytes, as they are: take them all, zeroed."""
    for size in range(1, _CACHED_SIZES):
        _ = [np.zeros(size, np.uint8) for _ in range(_CACHED_OF_A_SIZE)]


def _overwritten() -> str:
    import platform

    if platform.libc_ver()[0] == "glibc" and environment(os.environ) == dict(os.environ):
        return ""
    return "freed memory is not overwritten here: that takes Linux with the GNU C library, and its settings."


_PR_SET_DUMPABLE = 4
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_CAP_IPC_LOCK = 14


def _limits() -> Any:
    """POSIX's limits of a process; None on Windows, which has none."""
    try:
        import resource
    except ImportError:
        return None
    return resource


def without_dumps() -> str:
    """Switch off core dumps of this process; a sentence if that cannot be done here."""
    limits = _limits()
    if limits is None:
        return "a crash may write the memory to a disk; switch crash dumps off (Windows Error Reporting)."
    limits.setrlimit(limits.RLIMIT_CORE, (0, 0))
    # The limit does not count where dumps go to a program (|/usr/lib/…/coredump); this does, and it also keeps other
    # processes of the same user out of this one's memory.
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0:
        return ""
    return "a crash may write the memory to a disk; switch core dumps off for this user."


def _locked() -> str:
    """Lock the memory, where that cannot fail later: under a finite limit the next allocation might."""
    if sys.platform == "linux" and _may_lock():
        # Pages are locked when they are first used; otherwise every thread's stack would be there in full.
        if ctypes.CDLL(None).mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
            return ""
    raising = "" if _limits() is None else ", or raise the limit of locked memory (ulimit -l unlimited)"
    return f"memory may reach the swap space; switch swap off{raising}."


def _may_lock() -> bool:
    limits = _limits()
    _, hard = limits.getrlimit(limits.RLIMIT_MEMLOCK)
    if hard == limits.RLIM_INFINITY:
        limits.setrlimit(limits.RLIMIT_MEMLOCK, (hard, hard))
        return True
    with open("/proc/self/status", encoding="ascii") as status:
        capabilities = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return bool(int(capabilities, 16) >> _CAP_IPC_LOCK & 1)
