"""The bootstrap's tally: the weighted moments of every replicate.

Replicate b keeps Σ w_i^(b) q_i with q = (vech(x x'), x y), from which every estimator of the plan can be computed
for it. A block of records adds one matrix product; the weights come from a keyed hash as they are needed and are
never stored. Weights keyed by unit give the cluster bootstrap of the paper's Algorithm 4, weights keyed by a record
counter the i.i.d. one of its Algorithms 2 and 3; keeping moments needs no start from the first m records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.threads import cores
from foldaway.plan import Bootstrap
from foldaway.tallies.moments.tally import CountedArray
from foldaway.tallies.moments.vech import lift, lift_map, pair_products


@dataclass(slots=True)
class Replicates:
    """Σ w q for every replicate.

    Attributes:
        shape: How many regressors and outcomes a row has.
        bootstrap: How many replicates, and which weights.
        n: The number of records.
        totals: B by p; vech(x x') first, then x y for each outcome.
    """

    shape: Shape
    bootstrap: Bootstrap
    n: int
    totals: Floats

    @classmethod
    def empty(cls, bootstrap: Bootstrap, shape: Shape) -> Self:
        """The tally of no records."""
        width = shape.pairs + shape.outcomes * shape.regressors
        return cls(shape, bootstrap, 0, np.zeros((bootstrap.replicates, width)))

    def fold(self, block: Block) -> Self:
        """Take the block's records in, each with its own weight in every replicate."""
        from foldaway.numerics.kernels.accumulate import accumulate

        if block.key is None:
            raise ValueError("a block without keyed numbers cannot be folded by the bootstrap")
        k, m, totals = self.shape.regressors, self.shape.pairs, self.totals.copy()
        x, products = block.rows[:k], np.empty((totals.shape[1], len(block)))
        pair_products(x, products[:m])
        for o, y in enumerate(block.rows[k:]):
            np.multiply(x, y, out=products[m + o * k : m + (o + 1) * k])
        products, kind = np.ascontiguousarray(products.T), self.bootstrap.weights
        accumulate(block.key, products, self.bootstrap.replicates, kind, totals, cores())
        return replace(self, n=self.n + len(block), totals=totals)

    def __add__(self, other: Self) -> Self:
        """The tally of both sets of records."""
        return replace(self, n=self.n + other.n, totals=self.totals + other.totals)

    def rebase(self, B: Floats) -> Self:
        """With w = Bx'x and t = b'x + c y: vech(w w') = P v and w t = C v + c Bx's."""
        k, m = self.shape.regressors, self.shape.pairs
        Bx = B[:k, :k]
        v = self.totals[:, :m]
        parts = [v @ lift_map(Bx).T]
        for o, column in enumerate(range(k, self.shape.columns)):
            s = self.totals[:, m + o * k : m + (o + 1) * k]
            parts.append(v @ lift(Bx.T, B[:k, column]).T + B[column, column] * s @ Bx)
        return replace(self, totals=np.column_stack(parts))

    def moments(self, outcome: int) -> tuple[Floats, Floats]:
        """Σ w x x' (B by k by k) and Σ w x y (B by k) of every replicate."""
        k, m = self.shape.regressors, self.shape.pairs
        square = np.empty((len(self.totals), k, k))
        i, j = np.triu_indices(k)
        square[:, i, j] = square[:, j, i] = self.totals[:, :m]
        return square, self.totals[:, m + outcome * k : m + (outcome + 1) * k]

    def state(self) -> CountedArray:
        """What is saved."""
        return CountedArray(self.n, Array.of(self.totals))

    def restored(self, state: Any) -> Self:
        """The tally from its state."""
        saved = decode_part(state, CountedArray)
        if saved.n < 0:
            raise StateError("the state is damaged: its counts do not fit.")
        return replace(self, n=saved.n, totals=saved.array.read(*self.totals.shape))
