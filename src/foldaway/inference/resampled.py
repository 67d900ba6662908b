"""Errors, intervals and a test from the replicates of the bootstrap (Efron and Tibshirani 1993, ch. 6, 13, 15)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.replicates import Distribution
from foldaway.numerics.block import Floats

# An effect smaller than this share of the control's level is what rounding leaves of no effect at all.
_ROUNDING = 8 * np.finfo(np.float64).eps

_NONE = np.full(2, np.nan)


class Resampled(NamedTuple):
    """What the replicates say of an effect and of its share of the control's level."""

    std_error: float
    lower: float
    upper: float
    p_value: float
    relative_std_error: float
    relative_lower: float
    relative_upper: float
    used: int
    left_out: int


def resampled(found: Distribution, confidence: float) -> Resampled:
    """Standard errors, percentile intervals, and the test that inverts the percentile interval.

    The interval ends at the replicates numbered α(B + 1)/2 from either end (Davison and Hinkley 1997, ch. 5): between
    those lies 1 − α of what another replicate could be, whatever B is, and they are what the test's p-value says.

    Example:
        >>> found = Distribution(np.arange(-24.0, 976.0), np.full(1000, 100.0), 0)
        >>> result = resampled(found, 0.95)
        >>> round(result.p_value, 2), round(result.lower), round(result.relative_upper, 1)
        (0.05, 0, 9.5)
    """
    levels = found.levels
    effects = np.where(np.abs(found.effects) <= _ROUNDING * np.abs(levels), 0.0, found.effects)
    if len(effects) < 2:
        raise EstimateError("fewer than two replicates of the bootstrap have an estimate.")
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    relative = effects[levels != 0] / levels[levels != 0]
    lower, upper = np.quantile(effects, tails, method="weibull")
    relative_lower, relative_upper = _NONE if len(relative) < 2 else np.quantile(relative, tails, method="weibull")
    return Resampled(
        float(np.std(effects, ddof=1)),
        float(lower),
        float(upper),
        _two_sided(effects),
        float(np.std(relative, ddof=1)) if len(relative) > 1 else np.nan,
        float(relative_lower),
        float(relative_upper),
        len(effects),
        found.left_out,
    )


def _two_sided(effects: Floats) -> float:
    """Twice the smaller share of replicates on one side of zero, the sample itself counted among them."""
    below, above = np.sum(effects <= 0), np.sum(effects >= 0)
    return float(min(1.0, 2 * (1 + min(below, above)) / (len(effects) + 1)))
