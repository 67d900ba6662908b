"""Effects within strata, combined by the strata's sizes, with errors clustered by unit.

Cells are stratum by group by arm. An arm's level is Σ_s (n_s/n) ȳ_sa, n_s counting the records of all arms in the
stratum; without a group, sizes and means are those of the records that are left. The jackknife over groups gives the
levels' joint covariance, as `inference/jackknife.py` has it.

An arm that fills few groups of a stratum moves too far without one of them: its part of the variance is about e/(e − 1)
· (G − 1)/G times too large, e = (Σ_g n)²/Σ_g n². Half of that is taken back, by scaling what it moves by the fourth
root: all of it left too little where units differ in their numbers of records. With 40 sites of 10 units intervals are
8 % narrower.

Simulated with 3 to 40 sites of different levels, 10 to 200 units each: coverage 93 to 97 %, intervals about half as
wide as without strata. Where arms' shares differ by site, the difference without strata covered 38 to 43 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldaway.inference.jackknife import Cells, Statistic, group_doubt, mean
from foldaway.inference.levels import Levels, over
from foldaway.inference.welch import Spread
from foldaway.numerics.block import Floats

LONE = "in a stratum (or at a site), an arm has too few units to fill two groups, so there is no error within strata."
"""Why blocked effects are withheld."""


def by_stratum(cells: Cells, arms: int) -> Cells:
    """Cells by stratum, group and arm, of sums in which a stratum's arms stand side by side."""

    def split(sums: Floats) -> Floats:
        return np.moveaxis(sums.reshape(*sums.shape[:-1], -1, arms), -2, -3)

    return cells._replace(
        weight=split(cells.weight),
        value=split(cells.value),
        adjusted=None if cells.adjusted is None else split(cells.adjusted),
        records=None if cells.records is None else split(cells.records),
    )


def blocked_by_group(cells: Cells, statistic: Statistic = mean, *more: tuple[Cells, Statistic]) -> Levels:
    """The arms' levels by stratum, combined, and their covariance.

    Args:
        cells: Sums by stratum, group and arm, on the last three axes. Strata without records count for nothing.
        statistic: From cells to levels: `mean`, or `adjusted_mean` with a rate.
        more: Other outcomes of the same records, whose levels follow, with the covariance of all.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> n = rng.poisson([[[4.0, 1.0]], [[1.0, 4.0]]], (2, 32, 2))  # more are treated in the second
        >>> y = n * [[[0.0, 1.0]], [[10.0, 11.0]]] + rng.normal(size=n.shape)
        >>> np.diff(blocked_by_group(Cells(n, y)).value).round(1), np.diff(y.sum((0, 1)) / n.sum((0, 1))).round(1)
        (array([1.]), array([7.]))
    """
    parts = [_moving(*each) for each in ((cells, statistic), *more)]
    level, away, moved, share, n, filled, lone = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    groups = cells.weight.shape[-2]
    covariance = (groups - 1) / groups * np.swapaxes(moved, -1, -2) @ moved
    found = Levels(level + away, covariance, group_doubt(share), n, filled, away=away)
    return found._replace(why=tuple(LONE if each else "" for each in lone)) if lone.ndim == 1 else found


def _moving(cells: Cells, statistic: Statistic) -> tuple[NDArray[Any], ...]:
    """One outcome's levels by arm: what they are about, and what they are away from it.

    Then how they move without each group, what a group has of an arm's level, the records and filled groups of each
    arm, and whether it is lone in a stratum.
    """
    level = cells.level  # without it until the end: it would cost what varies its digits
    about = cells._replace(level=0.0, adjusted_level=cells.adjusted_level - level)
    size = cells.weight.sum(axis=-1)
    whole, rest = size.sum(axis=-1), size.sum(axis=-1, keepdims=True) - size
    there = np.asarray((cells.weight > 0).any(axis=(-2, -1)))[..., None]
    each = np.where(there, statistic(about.total()), 0.0)
    without = np.where(there[..., None], statistic(about.left_out()), 0.0)
    each, without = each[..., None, :], _as_far_as_it_should(cells.weight, each[..., None, :], without)
    away = _combined(each, whole[..., None])[..., 0, :]
    moved = _combined(without, rest)
    inside = over(cells.weight, cells.weight.sum(axis=-2, keepdims=True))
    share = _combined(np.nan_to_num(inside), np.broadcast_to(whole[..., None], size.shape))
    counted = cells.weight if cells.records is None else cells.records
    n, filled = np.asarray(counted.sum(axis=(-3, -2))), np.asarray((cells.weight.sum(axis=-3) > 0).sum(axis=-2))
    lone = np.asarray((lone_strata(cells) & there).any(axis=-2))
    return np.full(n.shape, level), away, moved - moved.mean(axis=-2, keepdims=True), share, n, filled, lone


def lone_strata(cells: Cells) -> NDArray[np.bool_]:
    """By stratum and arm, whether a single group or none has records: what it is without that group is unknown."""
    return np.asarray((cells.weight > 0).sum(axis=-2) < 2)


def rate_within(cells: Cells) -> float:
    """λ of `adjusted_mean` that makes the variance of differences within strata smallest, from groups alone.

    Where sums come from sites, nothing is known of single records: as in `inference/jackknife.py`, deviations of cells
    from their arm's mean in the stratum take their place, and there are too many of them for λ to need a fit for each
    left-out group.
    """
    total = cells.total()
    assert cells.adjusted is not None
    assert total.adjusted is not None
    away = [
        sums - cells.weight * np.nan_to_num(over(whole, total.weight))[..., None, :]
        for sums, whole in ((cells.value, total.value), (cells.value - cells.adjusted, total.value - total.adjusted))
    ]
    size = total.weight.sum(axis=-1, keepdims=True)
    times = np.nan_to_num(over(np.broadcast_to(size, total.weight.shape), total.weight))[..., None, :] ** 2
    spread = (times * away[1] ** 2).sum()
    return float((times * away[0] * away[1]).sum() / spread) if spread > 0 else 0.0


def spread_within(spread: Spread) -> Spread:
    """The arms' spread within strata, of which a blocked mean's variance is made: for `contrast_rate`.

    Args:
        spread: By stratum and arm, on the last two of the leading axes.
    """
    size = spread.weight.sum(axis=-1, keepdims=True)
    share = over(size, size.sum(axis=-2, keepdims=True))
    times = np.nan_to_num(over(np.broadcast_to(share, spread.weight.shape), spread.weight)) ** 2
    n = spread.n.sum(axis=-2)
    products = (times[..., None, None] * spread.products).sum(axis=-4) * (n**2)[..., None, None]
    return Spread(n, n, spread.mean.mean(axis=-3), products, spread.level)


def _combined(levels: Floats, size: Floats) -> Floats:
    """Σ_s (n_s/n) of levels, strata on the third axis from the end: (…, S, G, A) and (…, S, G)."""
    share = np.nan_to_num(over(size, size.sum(axis=-2, keepdims=True)))
    combined: Floats = (share[..., None] * levels).sum(axis=-3)
    return combined


def _as_far_as_it_should(weight: Floats, each: Floats, without: Floats) -> Floats:
    """Levels without a group, nearer to those with all by half of what an unbiased variance would have them."""
    groups = weight.shape[-2]
    share = np.nan_to_num(over(weight, weight.sum(axis=-2, keepdims=True)))
    effective = np.nan_to_num(over(1.0, (share**2).sum(axis=-2, keepdims=True)), nan=1.0)
    scale = ((effective - 1) / effective * groups / (groups - 1)) ** 0.25
    return np.where(np.isfinite(without), each + (without - each) * np.minimum(scale, 1.0), each)
