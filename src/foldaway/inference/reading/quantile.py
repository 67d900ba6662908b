"""Quantiles, from the histogram of their bins, and their error.

A quantile is the inverse of the distribution function at p, within its bin by interpolation (of logarithms, where bins
are logarithmic). What is told of it inverts the distribution function's own error: see `inference.stepped`, which the
levels carry. Their standard error, which rounding and the test between segments' levels go by, is the width of the
interval that reaches two standard errors to either side, over four; and no less than what a value in steps leaves open.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import EstimateError
from foldaway.inference.levels import Levels, over
from foldaway.inference.reading.source import Source
from foldaway.inference.stepped import Stepped, stepped
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


def quantile_levels(source: Source) -> Levels:
    """The arms' quantiles; where an arm's cannot be told, why."""
    outcome, histogram = source.outcome, source.histogram
    assert isinstance(outcome, Quantile)
    assert histogram is not None
    if not source.by_group and histogram.shape.weighted and histogram.squares is None:
        raise EstimateError("with weights, a quantile has this error by groups of units alone.")
    (p,), (place,) = outcome.quantiles, source.places
    binned = Binned(histogram.counts, outcome.binning.edges, histogram.squares)
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
        >>> counts = np.zeros((2, 1, 102))  # 100 bins from 0 to 50, 50 records in each
        >>> counts[..., 1:101] = 50
        >>> levels = quantiles(Binned(counts, np.linspace(0, 50, 101)), 0.9, by_group=False).levels
        >>> levels.value.round(9).tolist(), np.sqrt(np.diag(levels.covariance)).round(3).tolist()
        ([45.0, 45.0], [0.212, 0.212])
    """
    counts = binned.counts if by_group else binned.counts.sum(axis=-2, keepdims=True)
    found = stepped(counts, binned.edges, p, None if by_group else binned.squares)
    lower, upper = found.ends(REACH)
    with np.errstate(invalid="ignore"):
        width = np.where(np.isfinite(upper - lower), upper - lower, np.nan)
        error = np.maximum(width / (2 * REACH), _step(found) / math.sqrt(12))
    own = np.eye(error.shape[-1])
    doubt = np.nan_to_num(over(1.0, np.maximum(found.df, 0)))[..., None] * own
    there = found.n > 0
    levels = Levels(found.value, error[..., None] ** 2 * own, doubt, found.n, steps=found)
    outside = there & ~np.isfinite(lower + found.value + upper)
    return Quantiles(levels, outside, there & (_beyond(binned, found, by_group=by_group) < LEAST_BEYOND))


def _step(found: Stepped) -> Floats:
    """The width of a quantile's bin where values in it are not told apart: it may be anywhere there."""
    last = len(found.edges)
    place = np.minimum((found.height < found.p).sum(axis=-1), last)
    unknown = np.take_along_axis(found.unknown, place[..., None], -1)[..., 0]
    inner = np.clip(place, 1, last - 1)
    return np.where(unknown, found.edges[inner] - found.edges[inner - 1], 0.0)


def _beyond(binned: Binned, found: Stepped, *, by_group: bool) -> Floats:
    """How many groups have records at a quantile or beyond it; or of independent records, how many lie there."""
    if by_group:
        place = np.minimum((found.height < found.p).sum(axis=-1), found.height.shape[-1] - 1)[..., None]
        bins = np.arange(found.height.shape[-1])
        there = bins >= place if found.p >= 0.5 else bins <= place
        return np.asarray(((binned.counts * there[..., None, :]).sum(axis=-1) > 0).sum(axis=-1))
    return (found.df + 1) * min(found.p, 1 - found.p)
