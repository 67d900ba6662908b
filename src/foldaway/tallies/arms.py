"""What a trial holds that keeps moments: the tallies of its arms, and how records are folded into them.

Batches are folded on all cores: each worker folds a part of a large one, and the parts are added.

A cluster's g_j = Σ_i (vech(x x'), x y) depends on its rows through their second moments alone, and the K rows of its
factor R_j (R_j'R_j = Σ_i z z') have the same ones. So these rows stand for the records, as a unit, and every tally of
units comes out as if the records themselves had been folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.threads import on_threads, one_blas_thread
from foldaway.plan import Plan
from foldaway.plan.vocabulary import REPLICATES
from foldaway.records.batch import WORTH_A_WORKER, Batch
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.kinds import UNITS, kinds_of
from foldaway.tallies.scores import UnitScores


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms' tallies, in the order of the plan. A value: folding and adding give a new one."""

    arms: tuple[ArmTally, ...]
    released: ClassVar[bool] = False  # only sums are

    @classmethod
    def empty(cls, plan: Plan) -> Self:
        """The tallies of no records."""
        shape = Shape(len(plan.regressors), len(plan.values))
        return cls(tuple(ArmTally.empty(shape, kinds_of(plan)) for _ in plan.arms))

    @property
    def counts(self) -> list[int]:
        """The number of records, by arm."""
        return [arm.n for arm in self.arms]

    @property
    def units(self) -> list[int]:
        """The number of units, by arm, where they are counted; else of records."""
        scores = [cast(UnitScores | None, arm.tallies.get(UNITS)) for arm in self.arms]
        return [arm.n if seen is None else seen.clusters for arm, seen in zip(self.arms, scores, strict=True)]

    @property
    def size(self) -> int:
        """How many numbers are kept, whatever the number of records."""
        return sum(arm.size() for arm in self.arms)

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        # The bootstrap splits its replicates over the cores; splitting the records as well would crowd them.
        workers = 1 if REPLICATES in self.arms[0].kinds else None
        return type(self)(tuple(fold_batch(self.arms, batch, workers)))

    def fold_clusters(self, codes: NDArray[np.intp], counts: NDArray[np.int64], triangles: Floats) -> Self:
        """Take whole clusters in, of which only the second moments have come.

        Args:
            codes: Each cluster's arm, by its place in the plan.
            counts: Each cluster's number of records.
            triangles: Each cluster's triangular factor of its rows z = [1, x, y], times the roots of their weights: J
                by K by K.
        """
        of = [codes == a for a in range(len(self.arms))]
        arms = (
            arm.fold(_block(counts[own], triangles[own])) if own.any() else arm
            for arm, own in zip(self.arms, of, strict=True)
        )
        return type(self)(tuple(arms))

    def __add__(self, other: Self) -> Self:
        return type(self)(tuple(a + b for a, b in zip(self.arms, other.arms, strict=True)))

    def turned(self, plan: Plan, places: Iterable[int]) -> Self:
        """The same under a plan that has its arms in another order."""
        return type(self)(tuple(self.arms[place] for place in places))

    def pool(self, columns: Iterable[int]) -> Self:
        """The same with these columns of levels joined to the first level, in every arm: see `ArmTally.pool`."""
        return type(self)(tuple(arm.pool(columns) for arm in self.arms))

    def state(self) -> list[Any]:
        """What is kept."""
        return [arm.state() for arm in self.arms]

    @classmethod
    def restore(cls, state: Any, plan: Plan) -> Self:
        """The tallies from their state."""
        empty = cls.empty(plan)
        if not isinstance(state, list) or len(state) != len(empty.arms):
            raise StateError("the state does not fit its plan: it has another number of arms.")
        arms = [ArmTally.restore(saved, arm.shape, arm.kinds) for saved, arm in zip(state, empty.arms, strict=True)]
        if len({arm.pooled for arm in arms}) != 1:
            raise StateError("the state is damaged: its arms have different levels pooled.")
        return cls(tuple(arms))


def fold_batch(arms: Sequence[ArmTally], batch: Batch, workers: int | None = None) -> list[ArmTally]:
    """The arms' tallies with the batch taken in; the arms given are left as they were."""
    cuts = batch.cuts(workers)
    if batch.is_worth_compiling(sum(arm.n for arm in arms)):
        batch = replace(batch, compiled=True)
    with one_blas_thread():
        if len(cuts) == 2:
            return _fold_part(arms, batch, *cuts)
        arms = [_with_frame(arm, number, batch) for number, arm in enumerate(arms)]
        folded = list(arms)
        for part in on_threads(lambda *ends: _fold_part([arm.emptied() for arm in arms], batch, *ends), cuts):
            folded = [have + more for have, more in zip(folded, part, strict=True)]
    return folded


def _fold_part(arms: Sequence[ArmTally], batch: Batch, start: int, stop: int) -> list[ArmTally]:
    folded = list(arms)
    for arm, block in batch.blocks(start, stop):
        folded[arm] = folded[arm].fold(block)
    return folded


def _with_frame(arm: ArmTally, number: int, batch: Batch) -> ArmTally:
    """The arm, with a frame from its first block if it has none yet: so that the workers share one."""
    if not arm.frame.n:
        for of, block in batch.blocks(0, min(len(batch), WORTH_A_WORKER)):
            if of == number and len(block):
                return arm.fold(block).emptied()
    return arm


def _block(counts: NDArray[np.int64], triangles: Floats) -> Block:
    clusters, K, _ = triangles.shape
    rows = triangles.reshape(clusters * K, K)
    unit = np.repeat(np.arange(clusters), K)
    # Few records leave empty rows below theirs.
    used = np.logical_or(rows.any(axis=1), np.arange(len(rows)) % K == 0)
    return Block(np.ascontiguousarray(rows[used].T), unit=unit[used], stands_for=int(counts.sum()))
