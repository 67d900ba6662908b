"""Many trials of every design, on several processes: the same numbers whatever their number."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
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
    for design in designs:
        tasks = [Task(design, first, min(first + _AT_ONCE, trials), seed) for first in range(0, trials, _AT_ONCE)]
        what = f"{design.name}, blocks of {_AT_ONCE} trials"
        for part in counted(_mapped(tasks, processes), len(tasks), what):
            for cell, hits in part.items():
                grid[cell] = grid.get(cell, Hits()) + hits
    return grid


def _mapped(tasks: Iterable[Task], processes: int) -> Iterator[Grid]:
    if processes == 1:
        yield from map(run, tasks)
        return
    # Fresh processes: a copy of this one would share locks of its numerical libraries.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run, tasks)


def run(task: Task) -> Grid:
    """The cells of some trials of a design. A trial's random numbers depend on seed, design and number alone."""
    grid: Grid = {}
    letters = list(task.design.name.encode())
    for number in range(task.first, task.stop):
        for cell, found in trial_of(task.design, np.random.default_rng([task.seed, number, *letters])).items():
            grid.setdefault(cell, Hits()).add(found)
    return grid


def broken(grid: Grid, trials: int) -> list[Cell]:
    """The cells whose coverage is not what theory says, or that were not there in every trial."""
    of = {design.name: design for design in DESIGNS}
    return [
        cell
        for cell, hits in grid.items()
        if hits.trials != trials or not expectation(of[cell.design], cell).holds(hits.coverage, trials)
    ]
