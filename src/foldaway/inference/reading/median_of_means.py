"""The median of the groups' means: what a few bad devices cannot move, however large the numbers are that they send.

A device is in one group of its arm. While less than half of an arm's groups hold a bad device, the median lies among
the means of the others (Nemirovsky and Yudin 1983; Lugosi and Mendelson 2019, "Mean estimation and regression under
heavy-tailed distributions"). It is taken as the mean of the middle fifth of the groups, or of `smallest_cell` of them
if these are more: so it is never the mean of one group, which could be one device. Its error is that of McKean and
Schrader (1984), the distance of two order statistics. `docs/validation/bad_devices.md` has its coverage and width.

Where outcomes are skewed it is below the mean, in both arms; a difference compares like with like.
"""

from __future__ import annotations

import math

import numpy as np

from foldaway.inference.jackknife import cells_of
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source
from foldaway.numerics.block import Floats

LEAST = 16
"""The fewest groups that an arm needs."""

_MIDDLE = 0.2
_NORMAL = 1.959964

_SAME = "more than half of an arm's groups have the same mean, so their median says nothing."


def median_levels(source: Source) -> Levels:
    """The arms' medians, each with an error of its own: a device is in one arm."""
    (place,) = source.places
    cells, least = cells_of(source.sums, place), source.plan.privacy.smallest_cell
    few = f"fewer than {max(LEAST, least)} groups of an arm have records, too few for their median."
    arms = range(cells.weight.shape[-1])
    means = [_means(cells.weight[:, arm], cells.value[:, arm]) for arm in arms]
    found = [median_of_means(each, least) if len(each) >= max(LEAST, least) else (math.nan, math.nan) for each in means]
    value, error = np.array(found).T
    groups = np.array([len(each) for each in means], dtype=np.float64)
    return Levels(
        cells.level + value,
        np.diag(error**2),
        np.diag(1 / np.maximum(groups - 1, 1)),
        cells.weight.sum(axis=-2),
        groups,
        away=value,
        why=tuple(few if math.isnan(one) else "" if spread else _SAME for one, spread in found),
    )


def median_of_means(means: Floats, least: int) -> tuple[float, float]:
    """The median of sorted means, as the mean of those in the middle, `least` of them or more; and its standard error.

    Example:
        >>> means = np.arange(101.0)
        >>> means[-20:] = 1e9
        >>> median_of_means(means, 10)[0]
        50.0
    """
    count = len(means)
    middle = max(math.ceil(_MIDDLE * count), min(least, count))
    first = (count - middle) // 2
    beyond = max(round((count + 1) / 2 - _NORMAL * math.sqrt(count / 4)), 1)
    error = (means[count - beyond] - means[beyond - 1]) / (2 * _NORMAL)
    return float(means[first : count - first].mean()), float(error)


def _means(weight: Floats, value: Floats) -> Floats:
    """The means of the groups that have records, the smallest first."""
    some = weight > 0
    return np.sort(value[some] / weight[some])
