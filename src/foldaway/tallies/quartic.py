"""Sums over records of products of four variables, without forming a product twice.

The matrix Σ vech(x x') vech(x x')' has k²(k+1)²/4 entries but only about k⁴/24 different ones, since
x_a x_b x_c x_d does not depend on how the four are paired. Split the variables into three groups in order;
every product of four is then (a pair whose later group is t) × (a pair whose earlier group is at least t) for
some t: three narrow matrix products in place of one wide one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foldaway.block import Floats
from foldaway.tallies.vech import pairs

Indices = NDArray[np.intp]


class Layout:
    """For k variables: the order of pairs that makes the needed sets contiguous, and where each product is.

    Pairs are sorted by the groups of their two variables as 11, 12, 22, 23, 33, 13. Then {11}, {12, 22} and
    {23, 33, 13} (by later group), and all, {22, 23, 33} and {33} (by earlier group) are slices.
    """

    def __init__(self, k: int) -> None:
        group = np.arange(k) * 3 // k
        i, j = pairs(k)
        order = {(0, 0): 0, (0, 1): 1, (1, 1): 2, (1, 2): 3, (2, 2): 4, (0, 2): 5}
        kind = np.array([order[int(group[a]), int(group[b])] for a, b in zip(i, j, strict=True)])
        self.order: Indices = np.argsort(kind, kind="stable")
        self.i, self.j = i[self.order], j[self.order]
        edge = np.searchsorted(kind[self.order], np.arange(7))
        self.slices = [
            (slice(edge[0], edge[1]), slice(0, edge[6])),
            (slice(edge[1], edge[3]), slice(edge[2], edge[5])),
            (slice(edge[3], edge[6]), slice(edge[4], edge[5])),
        ]
        self.place = self._places(k)

    def _places(self, k: int) -> Indices:
        """For each entry of the full matrix, in vech order, where its product stands in the three results."""
        formed = np.concatenate(
            [_fours(k, self.i[left], self.j[left], self.i[right], self.j[right]).ravel() for left, right in self.slices]
        )
        products, first = np.unique(formed, return_index=True)
        i, j = pairs(k)
        return first[np.searchsorted(products, _fours(k, i, j, i, j))]


def _fours(k: int, i: Indices, j: Indices, r: Indices, s: Indices) -> Indices:
    """A number for each product x_i x_j x_r x_s of a row pair (i, j) and a column pair (r, s), whatever the order."""
    grid = np.broadcast_arrays(i[:, None], j[:, None], r[None, :], s[None, :])
    a, b, c, d = np.sort(np.stack(grid), axis=0)
    codes: Indices = ((a * k + b) * k + c) * k + d
    return codes


@lru_cache(maxsize=64)
def layout(k: int) -> Layout:
    """The layout for k variables, worked out once."""
    return Layout(k)


def record_products(x: Floats, y: Floats, step: int) -> tuple[Floats, Floats, Floats]:
    """Σ v v', Σ v s' and Σ s s' over records, for v = vech(x x') and s = x y per outcome.

    Args:
        x: Regressors, k by n.
        y: Outcomes, O by n.
        step: How many records to take at a time.

    Returns:
        Arrays of shape (m, m), (O, m, k) and (O, k, k) with m = k(k+1)/2.
    """
    k, n = x.shape
    outcomes = len(y)
    m = k * (k + 1) // 2
    if n == 1:
        return _one_record(x[:, 0], y[:, 0])
    plan = layout(k)
    sums = [np.zeros((_length(left), _length(right))) for left, right in plan.slices]
    vs, ss = np.zeros((outcomes, m, k)), np.zeros((outcomes, m))
    buffer = np.empty((m, min(step, n)))
    for start in range(0, n, step):
        xs, ys = x[:, start : start + step], y[:, start : start + step]
        v = buffer[:, : xs.shape[1]]
        np.multiply(xs[plan.i], xs[plan.j], out=v)
        for total, (left, right) in zip(sums, plan.slices, strict=True):
            total += v[left] @ v[right].T
        for o in range(outcomes):
            vs[o] += v @ (xs * ys[o]).T
            ss[o] += v @ (ys[o] * ys[o])
    flat = np.concatenate([total.ravel() for total in sums])
    inverse = np.argsort(plan.order)
    i, j = pairs(k)
    square = np.empty((outcomes, k, k))
    square[:, i, j] = square[:, j, i] = ss[:, inverse]
    return flat[plan.place], vs[:, inverse], square


def _one_record(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    i, j = pairs(len(x))
    v = x[i] * x[j]
    s = y[:, None] * x
    return v[:, None] * v, v[None, :, None] * s[:, None, :], s[:, :, None] * s[:, None, :]


def _length(part: slice) -> int:
    return int(part.stop - part.start)
