"""The tallies of all arms, and how records are folded into them.

Batches are folded on all cores: each worker folds a part of a large one, and the parts are added.

A cluster's g_j = Σ_i (vech(x x'), x y) depends on its rows through their second moments alone, and the K rows of its
factor R_j (R_j'R_j = Σ_i z z') have the same ones. So these rows stand for the records, as a unit, and every tally of
units comes out as if the records themselves had been folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.keeping.cohort import Census
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.threads import on_threads, one_blas_thread
from foldaway.plan import Plan
from foldaway.plan.vocabulary import REPLICATES
from foldaway.records.batch import WORTH_A_WORKER, Batch
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.kinds import UNITS, kinds_of
from foldaway.tallies.moments.pooling import rare_levels
from foldaway.tallies.moments.scores import UnitScores


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms' tallies. A value: folding and adding give a new one.

    All that a coordinator of devices that send moments holds; beside sums by group where a plan keeps moments.

    Attributes:
        plan: The plan.
        by_arm: The tallies, in the order of the plan.
    """

    plan: Plan
    by_arm: tuple[ArmTally, ...]
    histograms: ClassVar[tuple[()]] = ()
    fitted: ClassVar[None] = None  # only rich trials have moments by group
    unfixed: ClassVar[bool] = False
    released: ClassVar[bool] = False  # only sums are

    @classmethod
    def empty(cls, plan: Plan) -> Self:
        """The tallies of no records."""
        shape = Shape(len(plan.regressors), len(plan.values))
        return cls(plan, tuple(ArmTally.empty(shape, kinds_of(plan)) for _ in plan.arms))

    @property
    def arms(self) -> Self:
        """These."""
        return self

    @property
    def counts(self) -> list[int]:
        """The number of records, by arm."""
        return [arm.n for arm in self.by_arm]

    @property
    def n(self) -> int:
        """The number of records."""
        return sum(self.counts)

    def census(self) -> Census:
        """How many units stand behind the tallies, by arm, where they are counted; else records."""
        scores = [cast(UnitScores | None, arm.tallies.get(UNITS)) for arm in self.by_arm]
        units = [arm.n if seen is None else seen.clusters for arm, seen in zip(self.by_arm, scores, strict=True)]
        return Census({arm: [n] for arm, n in zip(self.plan.arms, units, strict=True)})

    @property
    def size(self) -> int:
        """How many numbers are kept, whatever the number of records."""
        return sum(self.kept().values())

    def kept(self) -> dict[str, int]:
        """The same by part."""
        parts = Counter[str]()
        for arm in self.by_arm:
            parts.update(arm.kept())
        return {f"moments.{name}": numbers for name, numbers in parts.items()}

    def plain(self) -> None:
        """There are no sums by group here."""

    def mean_squares(self) -> Floats:
        """The mean square of each column, over all records."""
        squares: Floats = np.sum([np.sum(arm.raw_factor() ** 2, axis=0) for arm in self.by_arm], axis=0)
        squares /= squares[0]
        return squares

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        # The bootstrap splits its replicates over the cores; splitting the records as well would crowd them.
        workers = 1 if REPLICATES in self.by_arm[0].kinds else None
        return replace(self, by_arm=tuple(fold_batch(self.by_arm, batch, workers)))

    def fold_clusters(self, codes: NDArray[np.intp], counts: NDArray[np.int64], triangles: Floats) -> Self:
        """Take whole clusters in, of which only the second moments have come.

        Args:
            codes: Each cluster's arm, by its place in the plan.
            counts: Each cluster's number of records.
            triangles: Each cluster's triangular factor of its rows z = [1, x, y], times the roots of their weights: J
                by K by K.
        """
        of = [codes == a for a in range(len(self.by_arm))]
        arms = (
            arm.fold(_block(counts[own], triangles[own])) if own.any() else arm
            for arm, own in zip(self.by_arm, of, strict=True)
        )
        return replace(self, by_arm=tuple(arms))

    def __add__(self, other: Self) -> Self:
        return replace(self, by_arm=tuple(a + b for a, b in zip(self.by_arm, other.by_arm, strict=True)))

    def without(self, other: Self) -> Self:
        """The same without clusters that are in them."""
        by_arm = (mine.without(gone) for mine, gone in zip(self.by_arm, other.by_arm, strict=True))
        return replace(self, by_arm=tuple(by_arm))

    def turned(self, plan: Plan, places: Sequence[int]) -> Self:
        """The same under a plan that has its arms in another order."""
        return type(self)(plan, tuple(self.by_arm[place] for place in places))

    def fixed(self, *_: Any, **__: Any) -> Self:
        """As they are: regressions are read from them whenever they are asked for."""
        return self

    def pooled(self) -> Self:
        """With levels that too few people have joined to the first level, in every arm: see `ArmTally.pool`.

        Devices and sites have rules of their own for what they send.
        """
        if self.plan.federated is not None:
            return self
        columns = rare_levels(self.plan, self.by_arm, self.plan.privacy.smallest_cell)
        return replace(self, by_arm=tuple(arm.pool(columns) for arm in self.by_arm))

    def state(self) -> list[Any]:
        """What is kept."""
        return [arm.state() for arm in self.by_arm]

    @classmethod
    def restore(cls, state: Any, plan: Plan) -> Self:
        """The tallies from their state."""
        empty = cls.empty(plan)
        if not isinstance(state, list) or len(state) != len(empty.by_arm):
            raise StateError("the state does not fit its plan: it has another number of arms.")
        arms = [ArmTally.restore(saved, arm.shape, arm.kinds) for saved, arm in zip(state, empty.by_arm, strict=True)]
        if len({arm.pooled for arm in arms}) != 1:
            raise StateError("the state is damaged: its arms have different levels pooled.")
        return cls(plan, tuple(arms))


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
