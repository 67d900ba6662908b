"""Tests and intervals from an estimate and its standard error."""

from __future__ import annotations

import math


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
