"""A Parquet file folded into sums or moments by group, as a process does that has loaded nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

import foldaway as fa
from foldaway.numerics.block import Shape
from foldaway.numerics.threads import on_threads, one_core
from foldaway.records.check import check
from foldaway.records.keys import UnitKeys
from foldaway.sources.formats.chunk import wanted_by
from foldaway.sources.formats.files import parts, read
from foldaway.tallies.group_folding import fold_group_moments, fold_sums
from foldaway.tallies.group_moments import GroupMoments, MomentsShape
from foldaway.tallies.sums import GROUPS, Sums, SumsShape

THREADS = 2
COVARIATES = [f"x{c}" for c in range(1, 6)]
CENTER, SLOPES = np.array([0.0, 100.0, 0.0, 50.0, 0.0]), np.array([[1.0, 0.1, -1.0, 0.2, 1.0]])
KEYS = UnitKeys(bytes(range(16)))
SUMS = SumsShape(arms=2, outcomes=1, groups=GROUPS, adjusted=True)
MOMENTS = MomentsShape(2, GROUPS, Shape(1 + len(COVARIATES), 1))
PLAN = fa.Plan(
    name="groups",
    arm="arm",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["y"],
    covariates=COVARIATES,
    unit="unit",
    bootstrap=2,
    estimators=["regression"],
)

Tally = TypeVar("Tally", Sums, GroupMoments)


def sums_in(file: Path) -> Sums:
    """The sums of a file, with ỹ."""
    return fold(file, Sums.empty(SUMS), partial(fold_sums, coefficients=(CENTER, SLOPES)))


def moments_in(file: Path) -> GroupMoments:
    """The moments of a file, by group."""
    return fold(file, GroupMoments.empty(MOMENTS), fold_group_moments)


def fold(file: Path, empty: Tally, take: Callable[..., Tally]) -> Tally:
    """The tally of a file's records, of which each thread reads and folds a part."""

    def part(start: int, stop: int) -> Tally:
        tally = empty
        with one_core():
            for chunk in read(file, wanted_by(PLAN), part=range(start, stop)):
                batch, _ = check(chunk.records, PLAN, text=True, keys=KEYS)
                tally = take(tally, batch)
        return tally

    groups = len(parts(file))
    whole = empty
    for tally in on_threads(part, [groups * thread // THREADS for thread in range(THREADS + 1)]):
        whole = whole + tally
    return whole
