"""How the benchmarks measure and print: best of several rounds, the contestants taking turns, ratios in one run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping

from foldaway.table import text_table

# BLAS keeps its threads spinning for a while after their last task; they must not run in the next one's time.
_SETTLED = 0.2


def best_times(
    contestants: Mapping[str, Callable[[], object]], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Seconds of each contestant's best round; they take turns, so that noise on the machine meets all alike.

    For work that stays in one thread, `time.process_time` as the clock leaves out what others do on the machine.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(_SETTLED)
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def show(title: str, rows: list[list[str]], header: list[str]) -> None:
    """Print a table under a title."""
    print(f"\n{title}\n")
    print(text_table(header, rows), flush=True)


def machine() -> str:
    """One line on where this runs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"Python {platform.python_version()}, {platform.machine()}, {cores} cores"
