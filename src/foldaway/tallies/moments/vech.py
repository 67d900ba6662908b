"""Products of pairs: vech(x x') and how it changes when x changes linearly.

vech(x x') holds each product x_i x_j with i <= j once, ordered (0,0), (0,1), …, (1,1), (1,2), …
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats


@lru_cache(maxsize=64)
def pairs(k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The indices i and j of each pair, i <= j."""
    return np.triu_indices(k)


def pair_products(x: Floats, out: Floats) -> None:
    """Write vech(x x') of each record (a column of x, k by n) into out (k(k+1)/2 by n)."""
    k = len(x)
    start = 0
    for i in range(k):
        np.multiply(x[i], x[i:], out=out[start : start + k - i])
        start += k - i


def lift(u: Floats, v: Floats) -> Floats:
    """The coefficients c(u, v) with (u'x)(v'x) = c'vech(x x'), for each row of u and of v."""
    i, j = pairs(u.shape[-1])
    both = u[..., i] * v[..., j] + u[..., j] * v[..., i]
    both[..., i == j] /= 2
    return both


def lift_map(B: Floats) -> Floats:
    """P with vech(w w') = P vech(x x') for w = B'x."""
    i, j = pairs(B.shape[1])
    return lift(B.T[i], B.T[j])
