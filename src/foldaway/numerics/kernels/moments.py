"""A block's rows into a frame, and their sums of products of two and of four: NumPy's steps, done in one pass each.

NumPy writes every intermediate array out and reads it back; these loops keep what they work on in a core's cache.
They do the same sums, so which of the two serves a block changes no result beyond rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats
from foldaway.numerics.kernels.compiling import njit_sums, njit_vectors, run

Indices = NDArray[np.intp]

# Records at a time: few enough that a row's columns, and the products of its pairs, stay in the cache.
_TILE = 256


@njit_vectors
def frame_rows(F: Floats, rows: Floats) -> Floats:
    """F⁻¹ from the right: z F⁻¹ for each record z (a column of rows, K by n), F upper triangular.

    The first column is taken out before the others; where it is the intercept, that centres exactly.

    Example:
        >>> frame_rows(np.array([[1.0, 3.0], [0.0, 2.0]]), np.array([[1.0, 1.0], [3.0, 7.0]]))
        array([[1., 1.], [0., 2.]])
    """
    K, n = rows.shape
    framed = np.empty((K, n))
    for start in range(0, n, _TILE):
        stop = min(start + _TILE, n)
        size = stop - start
        for j in range(K):
            source, target, diagonal = rows[j, start:stop], framed[j, start:stop], F[j, j]
            for i in range(size):
                target[i] = source[i]
            for before in range(j):
                column, share = framed[before, start:stop], F[before, j]
                for i in range(size):
                    target[i] -= share * column[i]
            for i in range(size):
                target[i] /= diagonal
    return framed


@njit_sums
def gram(rows: Floats) -> Floats:
    """Σ z z' over the records (columns of rows, K by n).

    Example:
        >>> gram(np.array([[1.0, 1.0], [2.0, 3.0]]))
        array([[ 2., 5.], [ 5., 13.]])
    """
    K, n = rows.shape
    sums = np.zeros((K, K))
    for start in range(0, n, _TILE):
        stop = min(start + _TILE, n)
        for j in range(0, K, 2):
            end = min(j + 2, K)
            _add_dots(rows, j, end, rows, 0, end, start, stop, sums)
    for j in range(K):
        for i in range(j):
            sums[i, j] = sums[j, i]
    return sums


def add_grams(rows: Floats, cell: Indices, grams: Floats) -> None:
    """Add Σ z z' over the records (columns of rows, K by n) of each cell.

    Example:
        >>> grams = np.zeros((2, 1, 1))
        >>> add_grams(np.array([[1.0, 2.0, 3.0]]), np.array([1, 0, 1]), grams)
        >>> grams.ravel()
        array([ 4., 10.])
    """
    run(_add_grams, rows, cell, grams)


@njit_sums
def _add_grams(rows: Floats, cell: Indices, grams: Floats) -> None:
    K, n = rows.shape
    # Each cell's records side by side, so that its sums are dot products.
    starts = np.zeros(len(grams) + 1, dtype=np.intp)
    for i in range(n):
        starts[cell[i] + 1] += 1
    for c in range(len(grams)):
        starts[c + 1] += starts[c]
    following = starts.copy()
    place = np.empty(n, dtype=np.intp)
    for i in range(n):
        place[i] = following[cell[i]]
        following[cell[i]] += 1
    z = np.empty((K, n))
    for j in range(K):
        for i in range(n):
            z[j, place[i]] = rows[j, i]
    for c in range(len(grams)):
        for j in range(K):
            for k in range(j + 1):
                total = grams[c, j, k]
                for i in range(starts[c], starts[c + 1]):
                    total += z[j, i] * z[k, i]
                grams[c, j, k] = grams[c, k, j] = total


@njit_sums
def products_of_four(
    x: Floats, y: Floats, pair: tuple[Indices, Indices], parts: Indices, vv: Floats, vs: Floats, ss: Floats
) -> None:
    """Add the sums that `foldaway.tallies.moments.quartic` lays out: part by part v v' and (x y) v', and y² v'.

    Args:
        x: Regressors, k by n.
        y: Outcomes, O by n.
        pair: The variables of each pair, in the layout's order.
        parts: For each part the pairs on the left, the pairs on the right and the variables, as start and stop.
        vv: m by m, for m pairs.
        vs: O by k by m.
        ss: O by m.
    """
    k, n = x.shape
    outcomes = len(y)
    first, second = pair
    m = len(first)
    v = np.empty((m, _TILE))
    xy = np.empty((k, _TILE))
    squares = np.empty((1, _TILE))
    for start in range(0, n, _TILE):
        stop = min(start + _TILE, n)
        size = stop - start
        for p in range(m):
            _multiply(x[first[p], start:stop], x[second[p], start:stop], v[p])
        for part in parts:
            _add_dots(v, part[0], part[1], v, part[2], part[3], 0, size, vv)
        for o in range(outcomes):
            response = y[o, start:stop]
            for j in range(k):
                _multiply(x[j, start:stop], response, xy[j])
            _multiply(response, response, squares[0])
            for part in parts:
                _add_dots(xy, part[4], part[5], v, part[2], part[3], 0, size, vs[o])
            _add_dots(squares, 0, 1, v, 0, m, 0, size, ss[o : o + 1])


@njit_sums
def _multiply(a: Floats, b: Floats, out: Floats) -> None:
    for i in range(len(a)):
        out[i] = a[i] * b[i]


@njit_sums
def _add_dots(
    a: Floats, a_start: int, a_stop: int, b: Floats, b_start: int, b_stop: int, start: int, stop: int, sums: Floats
) -> None:
    """Add a b' of some rows of each, over some columns; two rows of each at a time: a number fetched is used twice.

    The arrays come whole: the compiler knows that a row of a whole array lies side by side.
    """
    n = stop - start
    for r in range(a_start, a_stop - 1, 2):
        a0, a1 = a[r, start:stop], a[r + 1, start:stop]
        for c in range(b_start, b_stop - 1, 2):
            b0, b1 = b[c, start:stop], b[c + 1, start:stop]
            s00 = s01 = s10 = s11 = 0.0
            for i in range(n):
                s00 += a0[i] * b0[i]
                s01 += a0[i] * b1[i]
                s10 += a1[i] * b0[i]
                s11 += a1[i] * b1[i]
            sums[r, c] += s00
            sums[r, c + 1] += s01
            sums[r + 1, c] += s10
            sums[r + 1, c + 1] += s11
        if (b_stop - b_start) % 2:
            b0 = b[b_stop - 1, start:stop]
            sums[r, b_stop - 1] += _dot(a0, b0)
            sums[r + 1, b_stop - 1] += _dot(a1, b0)
    if (a_stop - a_start) % 2:
        a0 = a[a_stop - 1, start:stop]
        for c in range(b_start, b_stop):
            sums[a_stop - 1, c] += _dot(a0, b[c, start:stop])


@njit_sums
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total
