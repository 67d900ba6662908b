"""Quantiles, from the histogram of their bins, and their error.

A quantile is the inverse of the distribution function F at p, within its bin by interpolation (of logarithms, where
bins are logarithmic). Its error comes the same way (Woodruff 1952). F at the estimate is a mean of zeros and ones,
whose error s is known: by groups of units, jointly over the arms, or for independent records. How far the quantile
moves with F is looked up in the same histogram, two such errors to either side:

    rate = (F⁻¹(p₊) − F⁻¹(p₋)) / 4s,    logit p± = logit p ± 2s / (p(1 − p)),    V(q_a, q_b) = rate_a rate_b V(F_a, F_b)

On the scale of logits the quantiles of most outcomes are nearly straight in the tails; with p ± 2s itself, errors of
the 99th percentile were 40 % too large. For independent records s² is p(1 − p)/n, and V the variance of Yao, Li and Lu
(2024, "Privacy-preserving quantile treatment effect estimation for randomized controlled experiments").

The spread of s² itself comes from those who lie beyond the quantile. If these are Poisson in each of G groups, λ on
average, s² has 2G/(2 + 1/λ) degrees of freedom: the harmonic mean of G and of the number of groups that carry them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import EstimateError
from foldaway.inference.jackknife import group_doubt, jackknifed
from foldaway.inference.levels import Levels, over
from foldaway.inference.reading.source import Source
from foldaway.numerics.block import Floats
from foldaway.plan import Quantile

REACH = 2.0
"""How many standard errors of F to either side show how far the quantile moves."""

LEAST_BEYOND = 10
"""With fewer records beyond a quantile, or fewer groups of units that have some there, no error is told."""

_OUTSIDE = (
    "in an arm, this quantile lies beyond the `bounds` that the plan gives its outcome, or too close to them: values "
    "there are not told apart."
)
_FEW_GROUPS = f"in an arm, fewer than {LEAST_BEYOND} groups of units have records beyond this quantile."
_FEW_RECORDS = f"in an arm, fewer than {LEAST_BEYOND} records lie beyond this quantile."


class Binned(NamedTuple):
    """An outcome by bin, the first and the last being those beyond the bounds, with any leading axes.

    Attributes:
        counts: The number of records, or Σw: (…, A, G, B).
        edges: Those of the bins within the bounds: (B − 1).
        squares: Σw² by arm and bin: (…, A, B); None without weights.
    """

    counts: Floats
    edges: Floats
    squares: Floats | None = None


class Quantiles(NamedTuple):
    """The arms' quantiles.

    Attributes:
        levels: They and their covariance; NaN where a quantile, or an end that its error is read from, is outside.
        outside: Whether that lies beyond the bounds, where values are not told apart: (…, A).
        few: Whether too few lie beyond the quantile: (…, A).
    """

    levels: Levels
    outside: NDArray[np.bool_]
    few: NDArray[np.bool_]


class _Place(NamedTuple):
    """Where each arm's distribution function reaches some height: the bin, how much of it lies below, and the value."""

    bin: NDArray[np.intp]
    part: Floats
    value: Floats


def quantile_levels(source: Source) -> Levels:
    """The arms' quantiles; where an arm's cannot be told, why."""
    outcome, histogram = source.outcome, source.histogram
    assert isinstance(outcome, Quantile)
    assert histogram is not None
    if not source.by_group and histogram.shape.weighted and histogram.squares is None:
        raise EstimateError("with weights, a quantile has this error by groups of units alone.")
    (p,), (place,) = outcome.quantiles, source.places
    binned = Binned(histogram.counts, outcome.bins.edges, histogram.squares)
    found = quantiles(binned, p, by_group=source.by_group)
    few = _FEW_GROUPS if source.by_group else _FEW_RECORDS
    why = tuple(_OUTSIDE if outside else few if rare else "" for outside, rare in zip(*found[1:], strict=True))
    return found.levels._replace(n=source.sums.counts(place).sum(axis=1), why=why)


def quantiles(binned: Binned, p: float, *, by_group: bool) -> Quantiles:
    """The arms' quantiles at p.

    Args:
        binned: The histograms.
        p: Between 0 and 1.
        by_group: Whether the error comes from groups of units; if not, records are taken as independent.

    Example:
        >>> counts = np.zeros((2, 1, 102))  # 100 bins from 0 to 100, 50 records in each
        >>> counts[..., 1:101] = 50
        >>> levels = quantiles(Binned(counts, np.linspace(0, 100, 101)), 0.9, by_group=False).levels
        >>> levels.value.round(9).tolist(), np.sqrt(np.diag(levels.covariance)).round(3).tolist()
        ([90.0, 90.0], [0.425, 0.425])
    """
    whole = binned.counts.sum(axis=-2)
    heights = over(whole.cumsum(axis=-1), whole.sum(axis=-1, keepdims=True))
    at = _inverse(heights, np.full(heights.shape[:-1], p), binned.edges)
    of_heights, beyond = (_by_group if by_group else _independent)(binned, at, p)
    error = np.sqrt(np.maximum(np.diagonal(of_heights.covariance, axis1=-2, axis2=-1), 0))
    moved = REACH * error / (p * (1 - p))
    lower, upper = (
        _inverse(heights, 1 / (1 + (1 - p) / p * np.exp(-side * moved)), binned.edges).value for side in (-1, 1)
    )
    rate = over(upper - lower, 2 * REACH * error)
    covariance = of_heights.covariance * np.nan_to_num(rate[..., :, None] * rate[..., None, :])
    step = _step(whole, at.bin, binned.edges)
    covariance = covariance + (step**2 / 12)[..., None] * np.eye(step.shape[-1])
    there = whole.sum(axis=-1) > 0
    outside = there & ~np.isfinite(lower + at.value + upper)
    levels = of_heights._replace(value=at.value, covariance=covariance)
    return Quantiles(levels, outside, there & (beyond < LEAST_BEYOND))


def _by_group(binned: Binned, at: _Place, p: float) -> tuple[Levels, Floats]:
    """F at the quantiles by the jackknife, and how many groups have records beyond them."""
    cells = np.swapaxes(binned.counts.sum(axis=-1), -1, -2)
    below = np.swapaxes(_below(binned.counts, at.bin[..., None], at.part[..., None]), -1, -2)
    rest = cells.sum(axis=-2, keepdims=True) - cells
    without = over(below.sum(axis=-2, keepdims=True) - below, rest)
    levels = jackknifed(np.full(at.value.shape, p), without, cells)
    beyond = np.maximum(cells - below if p >= 0.5 else below, 0)
    doubt = (levels.doubt + np.nan_to_num(group_doubt(beyond))) / 2
    return levels._replace(doubt=doubt), (beyond > 1e-9 * cells).sum(axis=-2)


def _independent(binned: Binned, at: _Place, p: float) -> tuple[Levels, Floats]:
    """F at the quantiles of independent records, Σw² (1[y ≤ q] − p)² / (Σw)²; and how many records lie beyond."""
    whole = binned.counts.sum(axis=-2)
    weight, below = whole.sum(axis=-1), _below(whole, at.bin, at.part)
    beyond = weight - below if p >= 0.5 else below
    every = weight if binned.squares is None else binned.squares.sum(axis=-1)
    if binned.squares is None:
        variance = over(p * (1 - p), weight)
    else:
        squares = _below(binned.squares, at.bin, at.part)
        variance = over((1 - p) ** 2 * squares + p**2 * (every - squares), weight**2)
        beyond = np.nan_to_num(over(beyond**2, every - squares if p >= 0.5 else squares))
    own = np.eye(weight.shape[-1])
    worth = np.nan_to_num(over(weight**2, every))
    doubt = np.nan_to_num(over(1.0, np.maximum(worth - 1, 0)))[..., None] * own
    return Levels(np.full(weight.shape, p), variance[..., None] * own, doubt, weight), beyond


def _inverse(heights: Floats, p: Floats, edges: Floats) -> _Place:
    """The lowest value at which each arm's distribution function, given at the upper ends of bins, reaches p."""
    last = heights.shape[-1] - 1
    place = np.minimum((heights < p[..., None]).sum(axis=-1), last)
    upper = np.take_along_axis(heights, place[..., None], -1)[..., 0]
    lower = np.where(place > 0, np.take_along_axis(heights, np.maximum(place - 1, 0)[..., None], -1)[..., 0], 0.0)
    part = np.clip(over(p - lower, upper - lower), 0, 1)
    first, after = edges[np.clip(place - 1, 0, last - 2)], edges[np.clip(place, 1, last - 1)]
    value = first * (after / first) ** part if edges[0] > 0 else first + (after - first) * part
    return _Place(place, part, np.where((place > 0) & (place < last), value, np.nan))


def _below(counts: Floats, place: NDArray[np.intp], part: Floats) -> Floats:
    """How much of each histogram lies below a place in one of its bins."""
    bins = np.arange(counts.shape[-1])
    share = np.where(bins == place[..., None], part[..., None], bins < place[..., None])
    return np.asarray((counts * share).sum(axis=-1))


def _step(whole: Floats, place: NDArray[np.intp], edges: Floats) -> Floats:
    """The width of a quantile's bin where a bin beside it is empty: values come in steps, and it is anywhere there."""
    last = whole.shape[-1] - 1
    beside = [np.take_along_axis(whole, np.clip(place + side, 0, last)[..., None], -1)[..., 0] for side in (-1, 1)]
    inner = np.clip(place, 1, last - 1)
    return np.where((beside[0] > 0) & (beside[1] > 0), 0.0, edges[inner] - edges[inner - 1])
