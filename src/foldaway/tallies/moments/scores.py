"""The fourth-order tally behind robust and clustered errors.

For a cluster j let g_j = Σ_i (vech(x x'), x y). The score u_j = Σ_i x (y − x'β) is linear in g_j whatever β
will be, so Σ_j g_j g_j' holds the meat Σ_j u_j u_j' for every β, in one pass. With every record its own
cluster that is HC0's meat; with the records of a unit together, CR0's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.tallies.moments.quartic import record_products
from foldaway.tallies.moments.vech import lift, lift_map, pair_products

# Records per step: the products of that many records stay in a core's cache.
_STEP = 1024


class ScoresState(msgspec.Struct, array_like=True):
    """What the tally keeps."""

    n: int
    clusters: int
    sums: Array


@dataclass(slots=True)
class Scores:
    """Σ_j g_j g_j' with every record its own cluster; blocks across outcomes are never needed.

    Attributes:
        shape: How many regressors and outcomes a row has.
        n: The number of records.
        clusters: The number of clusters.
        sums: Σ v v', then Σ v s' per outcome, then Σ s s' per outcome, flat, for v = Σ_i vech(x x') (shared by the
            outcomes) and s = Σ_i x y.
    """

    shape: Shape
    n: int
    clusters: int
    sums: Floats

    @classmethod
    def empty(cls, shape: Shape) -> Self:
        """The tally of no records."""
        (k, outcomes), m = shape, shape.pairs
        return cls(shape, 0, 0, np.zeros(m * m + outcomes * (m * k + k * k)))

    @property
    def scored(self) -> int:
        """The clusters whose scores are in the tally: all."""
        return self.clusters

    @property
    def squared_sums(self) -> Floats:
        """Σ_j s_j s_j' with s_j = Σ_i x: vech(x x') begins with the products of the intercept."""
        k = self.shape.regressors
        return self.vv[:k, :k]

    @property
    def vv(self) -> Floats:
        """Σ v v'."""
        return split(self.sums, self.shape)[0]

    def fold(self, block: Block) -> Self:
        """Take the block's records in, each as a cluster of its own."""
        n = block.rows.shape[1]
        k = self.shape.regressors
        sums = self.sums + _flat(record_products(block.rows[:k], block.rows[k:], compiled=block.compiled))
        return type(self)(self.shape, self.n + n, self.clusters + n, sums)

    def __add__(self, other: Self) -> Self:
        """The tally of both sets of clusters."""
        return type(self)(self.shape, self.n + other.n, self.clusters + other.clusters, self.sums + other.sums)

    def without(self, other: Self) -> Self:
        """The tally without clusters that are in it."""
        return type(self)(self.shape, self.n - other.n, self.clusters - other.clusters, self.sums - other.sums)

    def rebase(self, B: Floats) -> Self:
        """With w = Bx'x and t = b'x + c y: vech(w w') = P v and w t = C v + c Bx's."""
        k = self.shape.regressors
        Bx = B[:k, :k]
        P = lift_map(Bx)
        old_vv, old_vs, old_ss = split(self.sums, self.shape)
        vs, ss = np.empty_like(old_vs), np.empty_like(old_ss)
        for o, column in enumerate(range(k, len(B))):
            C = lift(Bx.T, B[:k, column])
            c = B[column, column]
            vs[o] = P @ (old_vv @ C.T + c * old_vs[o] @ Bx)
            cross = c * C @ old_vs[o] @ Bx
            ss[o] = C @ old_vv @ C.T + cross + cross.T + c * c * Bx.T @ old_ss[o] @ Bx
        return type(self)(self.shape, self.n, self.clusters, _flat((P @ old_vv @ P.T, vs, ss)))

    def meat(self, outcome: int, delta: Floats, scale: float = 1.0) -> Floats:
        """Σ_j u_j u_j' with u_j = Σ_i x (scale·y − x'δ), in the tally's frame."""
        vv, vs, ss = split(self.sums, self.shape)
        D = lift(np.eye(len(delta)), delta)
        cross = scale * D @ vs[outcome]
        meat: Floats = D @ vv @ D.T - cross - cross.T + scale * scale * ss[outcome]
        return meat

    def state(self) -> ScoresState:
        """What is saved."""
        return ScoresState(self.n, self.clusters, Array.of(self.sums))

    def restored(self, state: Any) -> Self:
        """The tally from its state."""
        saved = decode_part(state, ScoresState)
        if not 0 <= saved.clusters <= saved.n:
            raise StateError("the state is damaged: its counts do not fit.")
        return type(self)(self.shape, saved.n, saved.clusters, saved.sums.read(*self.sums.shape))


@dataclass(slots=True)
class UnitScores(Scores):
    """The same with the records of a unit together as one cluster, each unit complete within a block.

    Records of a block without unit numbers are units of their own, unless no block with them has come yet: such a
    block is passed over, and ``n`` then falls short of the records folded.
    """

    def fold(self, block: Block) -> Self:
        """Take the block's units in. A unit's rows may be any with its second moments, as those of its factor."""
        if block.unit is None:
            return Scores.fold(self, block) if self.n else self
        if not len(block):
            return self
        k = self.shape.regressors
        v, s = _unit_sums(block.rows[:k], block.rows[k:], block.unit)
        st = s.transpose(0, 2, 1)
        n, clusters = self.n + block.n, self.clusters + v.shape[1]
        return type(self)(self.shape, n, clusters, self.sums + _flat((v @ v.T, v @ st, s @ st)))


def split(sums: Floats, shape: Shape) -> tuple[Floats, Floats, Floats]:
    """Σ v v' (m by m), and per outcome Σ v s' (m by k) and Σ s s' (k by k), as views."""
    (k, outcomes), m = shape, shape.pairs
    first, second = m * m, m * m + outcomes * m * k
    vv, vs, ss = sums[:first], sums[first:second], sums[second:]
    return vv.reshape(m, m), vs.reshape(outcomes, m, k), ss.reshape(outcomes, k, k)


def _flat(parts: tuple[Floats, Floats, Floats]) -> Floats:
    return np.concatenate([part.ravel() for part in parts])


def _unit_sums(x: Floats, y: Floats, unit: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """v and s of every unit: the sums over its records, however many steps those span."""
    k, n = x.shape
    m = k * (k + 1) // 2
    units = int(unit[-1]) + 1
    v, s = np.zeros((m, units)), np.zeros((len(y), k, units))
    for start in range(0, n, _STEP):
        step = slice(start, start + _STEP)
        products = np.empty((m, len(unit[step])))
        pair_products(x[:, step], products)
        units_here, first = np.unique(unit[step], return_index=True)
        v[:, units_here] += np.add.reduceat(products, first, axis=1)
        s[:, :, units_here] += np.add.reduceat(x[:, step] * y[:, None, step], first, axis=2)
    return v, s
