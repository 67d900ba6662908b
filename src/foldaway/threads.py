"""How many threads to use, and keeping those of BLAS from fighting ours for the cores."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

CORES = "FOLDAWAY_CORES"
"""The environment's name for how many cores a process may take, where several share the machine."""


def cores() -> int:
    """The cores that this process may use."""
    if (share := os.environ.get(CORES, "")).isdecimal():
        return max(1, int(share))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """While it lasts, BLAS uses one thread: its own would fight those that call it."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@lru_cache(maxsize=1)
def _controller() -> Any:
    import scipy.linalg.lapack  # noqa: F401 - it brings a BLAS of its own, which must be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
