"""Many trials of every design, on several processes: the same numbers whatever their number and order."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

import foldaway as fa
from studies.findings import counted
from studies.judgement.design import Design
from studies.judgement.tally import Tally

Grid: TypeAlias = dict[tuple[Design, str], Tally]

_AT_ONCE = 25  # trials that a process takes at a time


class Task(NamedTuple):
    """Trials of one design, by its title, that a process takes at a time."""

    title: str
    first: int
    stop: int
    seed: int


def simulated(designs: Sequence[Design], trials: int, seed: int, processes: int) -> Grid:
    """What every cell of the designs has after so many trials."""
    tasks = [
        Task(each.title, first, min(first + _AT_ONCE, each.trials(trials)), seed)
        for each in designs
        for first in range(0, each.trials(trials), _AT_ONCE)
    ]
    of = {each.title: each for each in designs}
    grid: Grid = {}
    with _mapper(processes, of) as mapped:
        parts = zip(tasks, mapped(tasks), strict=True)
        for task, part in counted(parts, len(tasks), f"judgement, times {_AT_ONCE} trials"):
            for cell, tally in part.items():
                grid.setdefault((of[task.title], cell), Tally()).merge(tally)
    return grid


@contextmanager
def _mapper(processes: int, of: dict[str, Design]) -> Iterator[Callable[[Sequence[Task]], Iterable[dict[str, Tally]]]]:
    """Runs tasks here, or in so many fresh processes; their results come in the order of the tasks."""
    if processes == 1:
        yield partial(map, lambda task: run(of[task.title], task))
        return
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(threads, "1")
    # Fresh ones: a copy of this process would share locks of its numerical libraries.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield partial(pool.imap, _run_elsewhere)


def _run_elsewhere(task: Task) -> dict[str, Tally]:
    from studies.judgement.designs import DESIGNS

    return run(next(each for each in DESIGNS if each.title == task.title), task)


def run(design: Design, task: Task) -> dict[str, Tally]:
    """The cells of some trials. A trial's random numbers depend on seed, design and number alone."""
    cells: dict[str, Tally] = {}
    letters = list(design.title.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        warnings.simplefilter("ignore", fa.LossWarning)
        for number in range(task.first, task.stop):
            rng = np.random.default_rng([task.seed, number, *letters])
            for cell, notes in design.trial(rng).items():
                cells.setdefault(cell, Tally()).add(notes)
    return cells
