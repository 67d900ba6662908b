"""A batch: checked records, handed out arm by arm in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Block, Floats
from foldaway.numerics.threads import cores

# Records per block: enough that Python's overhead vanishes, few enough for the cache.
_BLOCK = 16_384

WORTH_COMPILING = 100_000
"""With this many records, loading the compiled loops costs less than they save."""

WORTH_A_WORKER = 40_000
"""Below this many records per worker, starting it costs more than it saves."""

# In a larger batch, what is assembled is not held until the next time: it would take as much memory as the records.
_SHARED = 1 << 18

Index = slice | NDArray[np.intp]


@dataclass(slots=True)
class Batch:
    """Checked records, of which blocks are assembled one at a time.

    Attributes:
        n: The number of records.
        assemble: Gives the rows (K by m, raw) of the records at an index.
        arms: The number of arms.
        arm: Each record's arm; None if there is one arm.
        weight: Observation weights, if any.
        unit: Each record's unit number, rising, if units are complete within the batch.
        key: Each record's keyed hash, for groups and the bootstrap.
        who: That of its unit, where `key` is its cluster's and a unit may have several records.
        compiled: Whether compiled loops are to serve its blocks.
        stratum: Each record's stratum, by its place in the plan.
        inverse: Each record's 1/π, of its arm in its stratum; no part of `weight`, since regressions with fixed effects
            do without.
        segments: For each of the plan's segments, its levels and each record's place among them.
        bins: For each of the plan's histograms, each record's bin.
        baseline: Gives rows of 1 and the baseline's traits of the records at an index; NaN where a record lacks one.
        characteristics: Of each of those whose levels the plan does not list, its levels and each record's place among
            them, where -1 is another level and -2 is none; None where it has numbers.
    """

    n: int
    assemble: Callable[[Index], Floats]
    arms: int = 1
    arm: NDArray[np.integer[Any]] | None = None
    weight: Floats | None = None
    unit: NDArray[np.int64] | None = None
    key: NDArray[np.uint64] | None = None
    who: NDArray[np.uint64] | None = None
    compiled: bool = False
    stratum: NDArray[np.integer[Any]] | None = None
    inverse: Floats | None = None
    segments: Sequence[tuple[Sequence[str], NDArray[np.integer[Any]]]] = ()
    bins: Sequence[NDArray[np.int16]] = ()
    baseline: Callable[[Index], Floats] | None = None
    characteristics: Sequence[tuple[Sequence[str], NDArray[np.integer[Any]]] | None] = ()

    def __len__(self) -> int:
        return self.n

    def assembled_once(self) -> Batch:
        """The same, of which each block is assembled once, for folds that go through it several times."""
        made: dict[tuple[int, int], Floats] = {}

        def assemble(index: Index) -> Floats:
            if not isinstance(index, slice) or self.n > _SHARED:
                return self.assemble(index)
            place = index.start, index.stop
            return made[place] if place in made else made.setdefault(place, self.assemble(index))

        return replace(self, assemble=assemble)

    def for_sums(self, predictors: int, values: int) -> Batch:
        """The same records as sums take them in, without columns of fixed effects.

        Args:
            predictors: How many columns there are before these.
            values: How many there are after them.
        """
        if self.inverse is None:
            return self

        def assemble(index: Index) -> Floats:
            rows = self.assemble(index)
            if len(rows) == predictors + values:
                return rows
            return np.concatenate([rows[:predictors], rows[len(rows) - values :]])

        return replace(self, assemble=assemble)

    def alike(self) -> Batch:
        """The same records, which weigh 1/π besides: arms then hold strata in the same proportions."""
        if self.inverse is None:
            return self
        weight = self.inverse if self.weight is None else self.weight * self.inverse
        return replace(self, weight=weight, inverse=None)

    def of_baseline(self) -> Batch:
        """The same records with traits in the place of outcomes, each counted once."""
        assert self.baseline is not None
        return Batch(self.n, self.baseline, self.arms, self.arm)

    def having(self, place: NDArray[np.integer[Any]]) -> tuple[Batch, NDArray[np.integer[Any]]]:
        """The arms and keyed hashes of the records that have a level of a characteristic, and their places."""
        assert self.arm is not None
        index = np.flatnonzero(place > -2)
        key = None if self.key is None else self.key[index]
        return Batch(len(index), self.assemble, self.arms, self.arm[index], key=key), place[index]

    def by_stratum(self, strata: int, histograms: Sequence[int] = ()) -> Batch:
        """The same records with an arm for each arm and stratum, within which they weigh as the plan says.

        Args:
            strata: How many strata there are.
            histograms: Which of the plan's histograms are kept by stratum.
        """
        assert self.stratum is not None
        bins = [self.bins[place] for place in histograms]
        return replace(self.cut(self.stratum, strata), stratum=None, inverse=None, bins=bins)

    def cut(self, level: NDArray[np.integer[Any]], levels: int) -> Batch:
        """The same records with an arm for each arm and level: those of a level side by side."""
        assert self.arm is not None
        arm = level.astype(np.int32) * self.arms + self.arm
        return replace(self, arms=self.arms * levels, arm=arm, segments=(), baseline=None, characteristics=())

    def is_worth_compiling(self, before: int) -> bool:
        """Whether compiled loops pay for it, after so many records before."""
        return before + self.n >= WORTH_COMPILING

    def cuts(self, workers: int | None = None) -> list[int]:
        """Where to cut the batch for so many workers, or one for each core, if they pay; every unit stays whole."""
        parts = min(workers or cores(), max(1, self.n // WORTH_A_WORKER))
        cuts = [self.n * part // parts for part in range(parts + 1)]
        if self.unit is not None:
            cuts = [int(np.searchsorted(self.unit, self.unit[c])) if c < self.n else c for c in cuts]
        return cuts

    def blocks(self, start: int, stop: int) -> Iterator[tuple[int, Block]]:
        """The records between two cuts as blocks, each with the number of its arm and every unit whole."""
        while start < stop:
            end = min(start + _BLOCK, stop)
            if self.unit is not None and end < stop:
                end = int(np.searchsorted(self.unit, self.unit[end - 1], side="right"))
            if self.arm is None:
                yield 0, self._block(slice(start, end))
            else:
                for arm in range(self.arms):
                    index = np.flatnonzero(self.arm[start:end] == arm)
                    if index.size:
                        yield arm, self._block(index + start)
            start = end

    def _block(self, index: Index) -> Block:
        return Block(
            self.assemble(index),
            None if self.weight is None else self.weight[index],
            None if self.unit is None else renumbered(self.unit[index]),
            None if self.key is None else self.key[index],
            compiled=self.compiled,
        )


def renumbered(rising: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers in rising order as 0, 1, 2, … without gaps.

    Example:
        >>> renumbered(np.array([3, 3, 7, 9, 9]))
        array([0, 0, 1, 2, 2])
    """
    steps = np.zeros(len(rising), dtype=np.int64)
    np.cumsum(rising[1:] != rising[:-1], out=steps[1:])
    return steps
