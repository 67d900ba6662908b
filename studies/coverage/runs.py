"""Many trials of every design, on several processes: the same numbers whatever their number."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from studies.coverage.designs import DESIGNS, Design
from studies.coverage.expectations import Cell, expectation
from studies.coverage.tally import Hits
from studies.coverage.trials import trial_of
from studies.findings import counted

Grid: TypeAlias = dict[Cell, Hits]

_AT_ONCE = 20  # trials that a process takes at a time


class Task(NamedTuple):
    """Trials of one design that a process takes at a time."""

    design: Design
    first: int
    stop: int
    seed: int


def simulated(designs: Sequence[Design], trials: int, seed: int, processes: int) -> Grid:
    """What every cell of the designs has after so many trials."""
    grid: Grid = {}
    with _mapper(processes) as mapped:
        for design in designs:
            starts = range(0, trials, _AT_ONCE)
            tasks = [Task(design, first, min(first + _AT_ONCE, trials), seed) for first in starts]
            for part in counted(mapped(tasks), len(tasks), f"{design.name}, times {_AT_ONCE} trials"):
                for cell, hits in part.items():
                    grid[cell] = grid.get(cell, Hits()) + hits
    return grid


@contextmanager
def _mapper(processes: int) -> Iterator[Callable[[Sequence[Task]], Iterable[Grid]]]:
    """Runs tasks here, or in so many fresh processes; their results come in the order of the tasks."""
    if processes == 1:
        yield partial(map, run)
        return
    # Fresh ones: a copy of this process would share locks of its numerical libraries.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield partial(pool.imap, run)


def run(task: Task) -> Grid:
    """The cells of some trials of a design. A trial's random numbers depend on seed, design and number alone."""
    grid: Grid = {}
    letters = list(task.design.name.encode())
    for number in range(task.first, task.stop):
        for cell, found in trial_of(task.design, np.random.default_rng([task.seed, number, *letters])).items():
            grid.setdefault(cell, Hits()).add(found)
    return grid


def broken(grid: Mapping[Cell, Hits], trials: int) -> list[Cell]:
    """The cells whose coverage is not what theory says, or that were not there in every trial without a reason."""
    of = {design.name: design for design in DESIGNS}
    return [
        cell
        for cell, hits in grid.items()
        if (hits.trials != trials and not may_be_withheld(of[cell.design], cell))
        or not expectation(of[cell.design], cell).holds(hits.coverage, hits.trials)
    ]


def may_be_withheld(design: Design, cell: Cell) -> bool:
    """Whether a trial of the design may have too few units for the error."""
    return (design.few_clusters or design.name == "small") and cell.by_unit
