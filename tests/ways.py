"""The ways in which rows can come to a regression: all of them give the same one."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import foldaway as fa
from foldaway.numerics.block import Floats

Way = Callable[[Floats, Floats], fa.LeastSquares]


def new(X: Floats) -> fa.LeastSquares:
    return fa.LeastSquares([f"c{c}" for c in range(X.shape[1])])


def by_row(X: Floats, y: Floats) -> fa.LeastSquares:
    fit = new(X)
    for row, response in zip(X, y, strict=True):
        fit.fold(row, response)
    return fit


def in_batches(X: Floats, y: Floats) -> fa.LeastSquares:
    fit = new(X)
    for start in range(0, len(y), 5):
        fit.fold(X[start : start + 5], y[start : start + 5])
    return fit


def at_once(X: Floats, y: Floats) -> fa.LeastSquares:
    fit = new(X)
    fit.fold(X, y)
    return fit


def from_shards(X: Floats, y: Floats) -> fa.LeastSquares:
    return reduce(lambda a, b: a + b, [at_once(X[s::3], y[s::3]) for s in range(3)])


def from_shards_by_row(X: Floats, y: Floats) -> fa.LeastSquares:
    a, b, c, d = (by_row(X[s::4], y[s::4]) for s in range(4))
    return (a + b) + (c + d)


WAYS = [at_once, by_row, in_batches, from_shards, from_shards_by_row]
