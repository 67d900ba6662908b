"""P-values and intervals from an estimate and its standard error, and p-values for several comparisons at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from foldaway.numerics.block import Floats


def p_value(statistic: float, df: float) -> float:
    """Two-sided, from Student's t; from the normal distribution if ``df`` is infinite.

    Example:
        >>> round(p_value(2.228, 10), 3)  # the 97.5 % point of t with 10 degrees of freedom
        0.05
    """
    from scipy.special import ndtr, stdtr

    tail = ndtr(-abs(statistic)) if math.isinf(df) else stdtr(df, -abs(statistic))
    return float(2 * tail)


def critical(confidence: float, df: float) -> float:
    """How many standard errors an interval reaches to each side."""
    from scipy.special import ndtri, stdtrit

    upper = 0.5 + confidence / 2
    return float(ndtri(upper) if math.isinf(df) else stdtrit(df, upper))


def anytime_width(n: int, confidence: float, tightest_at: int) -> float:
    """How many standard errors an anytime-valid interval reaches to each side, after n observations.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform central
    limit theory and asymptotic confidence sequences", Annals of Statistics 52, 2024), Gaussian mixture boundary:
    with ρ fixed in advance, √((nρ² + 1)/(nρ²) · log((nρ² + 1)/α²)) standard errors cover at all n at once.
    Their choice of ρ makes it tightest at a given n.

    Example:
        >>> anytime_width(10_000, 0.95, 10_000) > critical(0.95, 10_000)
        True
    """
    alpha = 1 - confidence
    two_logs = -2 * math.log(alpha)
    rho2 = (two_logs + math.log(two_logs + 1)) / tightest_at
    return math.sqrt((n * rho2 + 1) / (n * rho2) * math.log((n * rho2 + 1) / alpha**2))


def holm(p: Floats) -> Floats:
    """Holm (1979): controls the chance of any false finding.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03])).round(3)
        array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _restored(stepped, order)


def benjamini_hochberg(p: Floats) -> Floats:
    """Benjamini and Hochberg (1995): controls the expected share of false findings.

    Example:
        >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(3)
        array([0.03, 0.04, 0.04])
    """
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    stepped = np.minimum.accumulate(scaled[::-1])[::-1]
    return _restored(stepped, order)


def _restored(stepped: Floats, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    adjusted = np.empty_like(stepped)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


ADJUSTMENTS: dict[str, Callable[[Floats], Floats]] = {"holm": holm, "benjamini-hochberg": benjamini_hochberg}
