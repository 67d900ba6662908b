"""Sums over records of products of four variables, without forming a product much more than once.

The matrix Σ vech(x x') vech(x x')' has k²(k+1)²/4 entries but only about k⁴/24 different ones, since x_a x_b x_c x_d
does not depend on how the four are paired. Split the variables, in order, into three groups: every product of four is
then (a pair whose second variable is in group t) × (a pair whose first variable is in group t or later) for some t.
Three narrow matrix products do in place of one wide one. A product of three and an outcome is, likewise, (a variable
of group t) × (a pair whose first variable is in group t or later).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats
from foldaway.tallies.moments.vech import pairs

Indices = NDArray[np.intp]

_GROUPS = 3

# The pairs by the groups of their two variables, in an order in which every part is one stretch on either side.
_ORDER = ((0, 0), (0, 1), (1, 1), (2, 2), (1, 2), (0, 2))

# Records per step: the products of that many records stay in a core's cache.
_STEP = 2048


class Layout:
    """For k variables: the order of the pairs, which of them to multiply with which, and where each product stands.

    Attributes:
        pair: The variables of each pair, in the layout's order.
        parts: For each group the pairs on the left, the pairs on the right and the variables, as start and stop.
        vv: Where among the sums of pairs by pairs (m by m) those of vech(x x') vech(x x')' stand.
        vs: Where among the sums of variables by pairs (k by m) those of vech(x x') x' stand.
    """

    def __init__(self, k: int) -> None:
        group = np.arange(k) * _GROUPS // k
        i, j = pairs(k)
        kinds = [_ORDER.index(both) for both in zip(group[i].tolist(), group[j].tolist(), strict=True)]
        order = np.lexsort(np.array([j, i, kinds]))
        self.pair = a, b = i[order], j[order]
        stretches = [
            (*_stretch(group[b] == t), *_stretch(group[a] >= t), *_stretch(group == t)) for t in np.unique(group)
        ]
        self.parts = np.array(stretches)
        by_pairs, by_variables = np.zeros((len(i), len(i)), bool), np.zeros((k, len(i)), bool)
        for left, left_end, right, right_end, variable, variable_end in stretches:
            by_pairs[left:left_end, right:right_end] = True
            by_variables[variable:variable_end, right:right_end] = True
        row, column, each = np.s_[:, None], np.s_[None, :], np.arange(k)
        self.vv = _places(by_pairs, _codes(k, a[row], b[row], a, b), _codes(k, i[row], j[row], i[column], j[column]))
        self.vs = _places(by_variables, _codes(k, each[row], a, b), _codes(k, i[row], j[row], each[column]))


def _stretch(chosen: NDArray[np.bool_]) -> tuple[int, int]:
    """Start and stop of those chosen, which lie side by side."""
    at = np.flatnonzero(chosen)
    return int(at[0]), int(at[-1]) + 1


def _codes(k: int, *variables: Indices) -> Indices:
    """A number for each product of variables, the same in whatever order they come."""
    codes: Indices = np.zeros(1, dtype=np.intp)
    for variable in np.sort(np.stack(np.broadcast_arrays(*variables)), axis=0):
        codes = codes * k + variable
    return codes


def _places(formed: NDArray[np.bool_], codes: Indices, wanted: Indices) -> Indices:
    """For each product that is wanted, the first place where it is formed."""
    at = np.flatnonzero(formed)
    known, first = np.unique(codes.ravel()[at], return_index=True)
    places: Indices = at[first[np.searchsorted(known, wanted)]]
    return places


layout = lru_cache(maxsize=64)(Layout)
"""The layout for k variables, worked out once."""


def record_products(x: Floats, y: Floats, *, compiled: bool = False) -> tuple[Floats, Floats, Floats]:
    """Σ v v', Σ v s' and Σ s s' over records, for v = vech(x x') and s = x y per outcome.

    Args:
        x: Regressors, k by n.
        y: Outcomes, O by n.
        compiled: Whether the compiled loops are worth loading.

    Returns:
        Arrays of shape (m, m), (O, m, k) and (O, k, k) with m = k(k+1)/2.
    """
    k, outcomes = len(x), len(y)
    plan = layout(k)
    m = len(plan.pair[0])
    vv, vs, ss = np.zeros((m, m)), np.zeros((outcomes, k, m)), np.zeros((outcomes, m))
    if compiled:
        from foldaway.numerics.kernels.moments import products_of_four

        products_of_four(x, y, plan.pair, plan.parts, vv, vs, ss)
    else:
        _add_products(x, y, plan, vv, vs, ss)
    square = np.empty((outcomes, k, k))
    a, b = plan.pair
    square[:, a, b] = square[:, b, a] = ss  # Σ (x_a y)(x_b y) is Σ (x_a x_b) y²
    return vv.ravel()[plan.vv], vs.reshape(outcomes, -1)[:, plan.vs], square


def _add_products(x: Floats, y: Floats, plan: Layout, vv: Floats, vs: Floats, ss: Floats) -> None:
    """What `foldaway.numerics.kernels.moments.products_of_four` does, in NumPy."""
    buffer = np.empty((len(vv), min(_STEP, x.shape[1])))
    for start in range(0, x.shape[1], _STEP):
        xs, ys = x[:, start : start + _STEP], y[:, start : start + _STEP]
        v = buffer[:, : xs.shape[1]]
        for product, a, b in zip(v, *plan.pair, strict=True):
            np.multiply(xs[a], xs[b], out=product)
        for left, left_end, right, right_end, variable, variable_end in plan.parts:
            vv[left:left_end, right:right_end] += v[left:left_end] @ v[right:right_end].T
            for o, response in enumerate(ys):
                vs[o, variable:variable_end, right:right_end] += (xs[variable:variable_end] * response) @ v[
                    right:right_end
                ].T
        ss += (ys * ys) @ v.T
