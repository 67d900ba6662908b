"""How many threads to use, and keeping those of BLAS from fighting ours for the cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

CORES = "FOLDAWAY_CORES"
"""The environment's name for how many cores a process may take, where several share the machine."""

Part = TypeVar("Part")

_alone: ContextVar[bool] = ContextVar("one core", default=False)


def cores() -> int:
    """The cores that this process may use; one where an engine has given every core its own task."""
    if _alone.get():
        return 1
    if (share := os.environ.get(CORES, "")).isdecimal():
        return max(1, int(share))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_core() -> Iterator[None]:
    """While it lasts, this thread folds on one core: the others have tasks of their own.

    Example:
        >>> with one_core():
        ...     cores()
        1
    """
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


def on_threads(work: Callable[[int, int], Part], cuts: Sequence[int]) -> Iterator[Part]:
    """The work on each part between two cuts, in their order: each part on a thread of its own, if there are several.

    They work in this thread's context: it has NumPy's allocator, which a server makes wipe what it frees.

    Example:
        >>> list(on_threads(lambda start, stop: stop - start, [0, 3, 10]))
        [3, 7]
    """
    if len(cuts) == 2:
        yield work(*cuts)
        return
    with ThreadPoolExecutor(len(cuts) - 1) as pool:
        parts = [pool.submit(copy_context().run, work, start, stop) for start, stop in pairwise(cuts)]
        for part in parts:
            yield part.result()


def one_blas_thread() -> AbstractContextManager[Any]:
    """While it lasts, BLAS uses one thread: its own would fight those that call it."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@lru_cache(maxsize=1)
def _controller() -> Any:
    import scipy.linalg.lapack  # noqa: F401 - it brings a BLAS of its own, which must be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
