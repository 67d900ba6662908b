"""Groups of devices that stand out: whose sums lie further from those of their arm's others than chance explains.

Devices are dealt into groups at random, so an arm's groups are alike but for chance. With T the sum of a group of n
records and m the median of the groups' means, z = (T − n m)/√n has about the same spread in every group. How far z may
lie from its middle is judged by the groups in between, of which 20 % on either side may be bad: their ends are what b
and g give of Tukey's g distribution, whose upper side is longer for g > 0. A group at a distance of d from the middle
is then log(1 + g d/b)/g standard deviations of a normal distribution out (d/b for g = 0), so that purchases, of which
few are large, raise no alarm by being skewed. `docs/validation/bad_devices.md` has the rates of alarms, false and true.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from foldaway.inference.jackknife import Cells
from foldaway.numerics.block import Floats

LEAST = 16
"""The fewest groups that are compared."""

_FAR = 8.0
_WITHIN = 0.8
_QUANTILE = 0.8416212  # of the normal distribution, at that probability


def standing_out(cells: Cells) -> Iterator[tuple[int, int]]:
    """The arms and groups that stand out.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> n = rng.poisson(20.0, (64, 2)).astype(float)
        >>> v = 5 * n + np.sqrt(n) * rng.normal(size=(64, 2))
        >>> v[17, 1] += 1_000
        >>> list(standing_out(Cells(n, v)))
        [(1, 17)]
    """
    for arm in range(cells.weight.shape[-1]):
        (some,) = np.nonzero(cells.weight[:, arm] > 0)
        if len(some) >= LEAST:
            distances = _distances(cells.weight[some, arm], cells.value[some, arm])
            yield from ((arm, int(group)) for group in some[distances > _FAR])


def _distances(n: Floats, total: Floats) -> Floats:
    """How far out each group lies, in standard deviations; 0 for all if most are the same."""
    z = (total - n * np.median(total / n)) / np.sqrt(n)
    below, middle, above = np.quantile(z, [1 - _WITHIN, 0.5, _WITHIN])
    sides = above - middle, middle - below
    if not min(sides) > 0:
        return np.zeros(len(z))
    skew = math.log(sides[0] / sides[1]) / _QUANTILE
    upper, lower = (
        _score(far, side, g) for far, side, g in zip((z - middle, middle - z), sides, (skew, -skew), strict=True)
    )
    return np.maximum(upper, lower)


def _score(far: Floats, side: float, skew: float) -> Floats:
    """The normal score of a distance on one side, whose quantile lies so far from the middle."""
    far = np.maximum(far, 0.0) / side
    if skew <= 0:
        return _QUANTILE * far
    return np.log1p(far * math.expm1(skew * _QUANTILE)) / skew
