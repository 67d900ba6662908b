"""The chance that an any-time interval has left a bound out by some time, if one looks again and again until then.

With s(n) = σ/√n the error after n records and u(n) the reach of `anytime.anytime_reach`, the interval has left out a
bound that the effect lies δ above once δ̂ > u(n) s(n). Let X(n) = n δ̂/σ: a Brownian motion with drift θ = δ/σ, and the
question is when it first meets the curve b(n) = u(n) √n.

The density of X, of the paths that have not met b yet, is carried from one time to the next by Gauss-Legendre
quadrature (Armitage, McPherson and Rowe 1969). Times grow by a constant factor, so the chance at each of them is also
that of a trial that ends there. If one looks all the while, then between two times the path is a Brownian bridge, which
meets the chord of b with the chance exp(−2 (b₁ − x₁)(b₂ − x₂)/Δ) (Siegmund 1985, section 3.4).
"""

from __future__ import annotations

import math

import numpy as np

from foldaway.inference.anytime import anytime_reach
from foldaway.numerics.block import Floats

# By how much times grow where one looks all the while, and points at each that carry the density.
_FINE = 0.08
_POINTS = 96
# How far from its mean, in standard deviations, the density is carried.
_FAR = 8.0
# The earliest time that is looked at, next to the last.
_EARLIEST = 1e-3
# An error with few degrees of freedom is itself uncertain; this many of its quantiles stand for it.
_ERRORS = 3


def crossing(
    drift: float,
    last: float,
    *,
    first: float = 1.0,
    growth: float = 0.0,
    tail: float = 0.025,
    tightest_at: int = 10_000,
    df: float = math.inf,
    wider: float = 1.0,
) -> tuple[Floats, Floats]:
    """Times, and the chance that by each of them the interval has left the bound out.

    Args:
        drift: θ, the effect's distance from the bound over the standard deviation of a record.
        last: The number of records at the last look.
        first: That at the first, at least.
        growth: By which share the trial grows between two looks; 0 if one looks all the while.
        tail: The chance to leave it out wrongly, ever.
        tightest_at: The number of records at which the interval is tightest.
        df: The degrees of freedom of the error.
        wider: By how much the error of the interval exceeds that of the estimate.

    Example:
        >>> [round(float(crossing(0.04, 10_000, growth=growth)[1][-1]), 3) for growth in (0, 0.05, 0.5)]
        [0.897, 0.875, 0.848]
    """
    spaced = growth or _FINE
    looks = int(math.log(1 / min(max(first / last, _EARLIEST), 1.0)) / math.log1p(spaced)) + 1
    times = last * (1 + spaced) ** np.arange(1.0 - looks, 1.0)
    reach = anytime_reach(times, 1 - 2 * tail, tightest_at, df) * wider
    if math.isinf(df):
        return times, _met(drift, times, reach, between=not growth)
    from scipy.special import chdtri

    upper = (np.arange(_ERRORS) + 0.5) / _ERRORS
    errors = np.sqrt(chdtri(df, upper) / df)
    return times, np.mean([_met(drift, times, error * reach, between=not growth) for error in errors], axis=0)


def _met(drift: float, times: Floats, reach: Floats, *, between: bool) -> Floats:
    """The chance to have met the curve by each time, at these times or also between them."""
    from scipy.special import ndtr

    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    curve = np.where(np.isfinite(reach), reach, 1e6) * np.sqrt(times)
    mean, deviation = drift * times, np.sqrt(times)
    high = np.minimum(curve, mean + _FAR * deviation)
    low = np.minimum(mean - _FAR * deviation, high - deviation)
    chances = np.empty(len(times))
    x = low[0] + (nodes + 1) / 2 * (high[0] - low[0])
    density = np.exp(-((x - mean[0]) ** 2) / (2 * times[0])) / math.sqrt(2 * math.pi * times[0])
    chances[0] = ndtr((mean[0] - curve[0]) / deviation[0])
    for i in range(1, len(times)):
        mass = density * weights * (high[i - 1] - low[i - 1]) / 2
        step = times[i] - times[i - 1]
        after = low[i] + (nodes + 1) / 2 * (high[i] - low[i])
        moved = after[:, None] - x - drift * step
        kernel = np.exp(-(moved**2) / (2 * step))
        if between:
            kernel *= -np.expm1(-2 * (curve[i] - after)[:, None] * (curve[i - 1] - x) / step)
        density = kernel @ mass / math.sqrt(2 * math.pi * step)
        left = float(density @ weights) * (high[i] - low[i]) / 2
        chances[i] = max(chances[i - 1], 1 - left)
        x = after
    return np.minimum(chances, 1.0)
