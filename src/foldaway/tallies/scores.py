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

from foldaway.block import Block, Floats, Shape
from foldaway.errors import StateError
from foldaway.state import Array, decode_part
from foldaway.tallies.quartic import record_products
from foldaway.tallies.vech import lift, lift_map, pair_products

# Records per step: the products of that many records stay in a core's cache.
_STEP = 1024


class ScoresState(msgspec.Struct, array_like=True):
    """What the tally keeps."""

    n: int
    clusters: int
    vv: Array
    vs: Array
    ss: Array


@dataclass(slots=True)
class Scores:
    """Σ_j g_j g_j' with every record its own cluster; blocks across outcomes are never needed.

    Attributes:
        n: The number of records.
        clusters: The number of clusters.
        vv: Σ v v' for v = Σ_i vech(x x'), shared by the outcomes.
        vs: Σ v s' for s = Σ_i x y, per outcome.
        ss: Σ s s', per outcome.
    """

    n: int
    clusters: int
    vv: Floats
    vs: Floats
    ss: Floats

    @classmethod
    def empty(cls, shape: Shape) -> Self:
        """The tally of no records."""
        k, outcomes = shape
        m = k * (k + 1) // 2
        return cls(0, 0, np.zeros((m, m)), np.zeros((outcomes, m, k)), np.zeros((outcomes, k, k)))

    def fold(self, block: Block) -> Self:
        """Take the block's records in, each as a cluster of its own."""
        k = self.ss.shape[1]
        vv, vs, ss = record_products(block.rows[:k], block.rows[k:], _STEP)
        n = len(block)
        return type(self)(self.n + n, self.clusters + n, self.vv + vv, self.vs + vs, self.ss + ss)

    def __add__(self, other: Self) -> Self:
        """The tally of both sets of clusters."""
        n, clusters = self.n + other.n, self.clusters + other.clusters
        return type(self)(n, clusters, self.vv + other.vv, self.vs + other.vs, self.ss + other.ss)

    def rebase(self, B: Floats) -> Self:
        """With w = Bx'x and t = b'x + c y: vech(w w') = P v and w t = C v + c Bx's."""
        k = self.ss.shape[1]
        Bx = B[:k, :k]
        P = lift_map(Bx)
        vv = P @ self.vv @ P.T
        vs, ss = np.empty_like(self.vs), np.empty_like(self.ss)
        for o, column in enumerate(range(k, len(B))):
            C = lift(Bx.T, B[:k, column])
            c = B[column, column]
            vs[o] = P @ (self.vv @ C.T + c * self.vs[o] @ Bx)
            cross = c * C @ self.vs[o] @ Bx
            ss[o] = C @ self.vv @ C.T + cross + cross.T + c * c * Bx.T @ self.ss[o] @ Bx
        return type(self)(self.n, self.clusters, vv, vs, ss)

    def meat(self, outcome: int, delta: Floats, scale: float = 1.0) -> Floats:
        """Σ_j u_j u_j' with u_j = Σ_i x (scale·y − x'δ), in the tally's frame."""
        D = lift(np.eye(len(delta)), delta)
        cross = scale * D @ self.vs[outcome]
        meat: Floats = D @ self.vv @ D.T - cross - cross.T + scale * scale * self.ss[outcome]
        return meat

    def state(self) -> ScoresState:
        """What is kept."""
        return ScoresState(self.n, self.clusters, Array.of(self.vv), Array.of(self.vs), Array.of(self.ss))

    @classmethod
    def restore(cls, state: Any, shape: Shape) -> Self:
        """The tally from its state."""
        kept = decode_part(state, ScoresState)
        k, outcomes = shape
        m = k * (k + 1) // 2
        if not 0 <= kept.clusters <= kept.n:
            raise StateError("the state is damaged: its counts do not fit.")
        vv, vs, ss = kept.vv.read(m, m), kept.vs.read(outcomes, m, k), kept.ss.read(outcomes, k, k)
        return cls(kept.n, kept.clusters, vv, vs, ss)


@dataclass(slots=True)
class UnitScores(Scores):
    """The same with the records of a unit together as one cluster, each unit complete within a block.

    A block without unit numbers is passed over; then ``n`` falls short of the records folded.
    """

    def fold(self, block: Block) -> Self:
        """Take the block's units in."""
        if block.unit is None or not len(block):
            return self
        k = self.ss.shape[1]
        v, s = _unit_sums(block.rows[:k], block.rows[k:], block.unit)
        st = s.transpose(0, 2, 1)
        n, clusters = self.n + len(block), self.clusters + v.shape[1]
        return type(self)(n, clusters, self.vv + v @ v.T, self.vs + v @ st, self.ss + s @ st)


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
        found, first = np.unique(unit[step], return_index=True)
        v[:, found] += np.add.reduceat(products, first, axis=1)
        s[:, :, found] += np.add.reduceat(x[:, step] * y[:, None, step], first, axis=2)
    return v, s
