"""The triangular factor R of rows z, R'R = Σ z z': its upper triangle, row by row, as a list of numbers.

Rows are rotated in: forming sums of squares first would lose half of the digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def with_row(factor: Sequence[float], row: Sequence[float]) -> list[float]:
    """The factor with one more row, by Givens rotations; it is empty before the first.

    Example:
        >>> with_row(with_row([], [3.0, 0.0]), [4.0, 5.0])
        [5.0, 4.0, 3.0]
    """
    rest = list(row)
    R = list(factor) or [0.0] * (len(rest) * (len(rest) + 1) // 2)
    place = 0
    for i in range(len(rest)):
        length = math.hypot(R[place], rest[i])
        cosine, sine = (R[place] / length, rest[i] / length) if length else (1.0, 0.0)
        for j in range(i, len(rest)):
            above, below = R[place], rest[j]
            R[place], rest[j] = cosine * above + sine * below, cosine * below - sine * above
            place += 1
    return R


def rows_of(factor: Sequence[float]) -> Iterator[list[float]]:
    """The rows of a factor, which are as good as those that it was made of."""
    columns = (math.isqrt(8 * len(factor) + 1) - 1) // 2
    end = 0
    for i in range(columns):
        start, end = end, end + columns - i
        yield [0.0] * i + list(factor[start:end])


def merged(factor: Sequence[float], other: Sequence[float]) -> list[float]:
    """The factor of the rows of both."""
    for row in rows_of(other):
        factor = with_row(factor, row)
    return list(factor)
