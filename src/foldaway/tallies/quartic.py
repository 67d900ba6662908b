"""Sums over records of products of four variables, without forming a product much more than once.

The matrix Σ vech(x x') vech(x x')' has k²(k+1)²/4 entries but only about k⁴/24 different ones, since x_a x_b x_c x_d
does not depend on how the four are paired. Split the variables, in order, into three groups: every product of four is
then (a pair whose second variable is in group t) × (a pair whose first variable is in group t or later) for some t.
Three narrow matrix products do in place of one wide one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foldaway.block import Floats
from foldaway.tallies.vech import pair_products, pairs

Indices = NDArray[np.intp]

_GROUPS = 3


class Layout:
    """For k variables: which pairs to multiply with which, and where in the results each product stands."""

    def __init__(self, k: int) -> None:
        i, j = pairs(k)
        group = np.arange(k) * _GROUPS // k
        # The pairs are ordered by their first variable, so those of a group or later are the end of the list.
        self.parts = [
            (np.flatnonzero(group[j] == t), slice(int(np.searchsorted(group[i], t)), len(i))) for t in np.unique(group)
        ]
        formed = [_fours(k, i[left], j[left], i[right], j[right]).ravel() for left, right in self.parts]
        products, first = np.unique(np.concatenate(formed), return_index=True)
        self.place = first[np.searchsorted(products, _fours(k, i, j, i, j))]


def _fours(k: int, i: Indices, j: Indices, r: Indices, s: Indices) -> Indices:
    """A number for each product x_i x_j x_r x_s of a row pair (i, j) and a column pair (r, s), in whatever order."""
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
    i, j = pairs(k)
    m = len(i)
    plan = layout(k)
    sums = [np.zeros((len(left), m - right.start)) for left, right in plan.parts]
    vs, ss = np.zeros((len(y), m, k)), np.zeros((len(y), m))
    buffer = np.empty((m, min(step, n)))
    for start in range(0, n, step):
        xs, ys = x[:, start : start + step], y[:, start : start + step]
        v = buffer[:, : xs.shape[1]]
        pair_products(xs, v)
        for total, (left, right) in zip(sums, plan.parts, strict=True):
            total += v[left] @ v[right].T
        for o in range(len(y)):
            vs[o] += v @ (xs * ys[o]).T
            ss[o] += v @ (ys[o] * ys[o])  # Σ (x_i y)(x_j y) is Σ (x_i x_j) y²
    vv = np.concatenate([total.ravel() for total in sums])[plan.place]
    square = np.empty((len(y), k, k))
    square[:, i, j] = square[:, j, i] = ss
    return vv, vs, square
