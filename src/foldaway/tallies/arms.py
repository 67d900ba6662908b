"""What a trial holds that keeps moments: the tallies of its arms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.numerics.block import Floats, Shape
from foldaway.plan import Plan
from foldaway.plan.vocabulary import REPLICATES
from foldaway.records.batch import Batch
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.folding import fold_batch, fold_clusters
from foldaway.tallies.kinds import UNITS, kinds_of
from foldaway.tallies.scores import UnitScores


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms' tallies, in the order of the plan. A value: folding and adding give a new one."""

    arms: tuple[ArmTally, ...]

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
        """Take whole clusters in, of which only the second moments have come: see `folding.fold_clusters`."""
        return type(self)(tuple(fold_clusters(self.arms, codes, counts, triangles)))

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
