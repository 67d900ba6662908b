"""P-values and intervals from an estimate and its standard error, and p-values for several comparisons at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from foldaway.numerics.block import Floats


def p_value(statistic: float, df: float) -> float:
    """Two-sided, from Student's t; from the normal distribution if ``df`` is infinite.

    Example:
        >>> round(p_value(2.228, 10), 3)  # the 97.5 % point of t with 10 degrees of freedom
        0.05
    """
    return 2 * tail(abs(statistic), df)


def tail(statistic: float, df: float) -> float:
    """How rare a statistic as large as this is: one-sided, from Student's t.

    Example:
        >>> round(tail(1.812, 10), 3), round(tail(-1.812, 10), 3)
        (0.05, 0.95)
    """
    from scipy.special import ndtr, stdtr

    return float(ndtr(-statistic) if math.isinf(df) else stdtr(df, -statistic))


def critical(confidence: float, df: float) -> float:
    """How many standard errors an interval reaches to each side."""
    from scipy.special import ndtri, stdtrit

    upper = 0.5 + confidence / 2
    return float(ndtri(upper) if math.isinf(df) else stdtrit(df, upper))


def holm(p: Floats) -> Floats:
    """Holm (1979): controls the chance of any false finding.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03])).round(3)
        array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p, kind="stable")
    return _restored(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), order)


def benjamini_hochberg(p: Floats) -> Floats:
    """Benjamini and Hochberg (1995): controls the expected share of false findings.

    Example:
        >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(3)
        array([0.03, 0.04, 0.04])
    """
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    return _restored(np.minimum.accumulate(scaled[::-1])[::-1], order)


def _restored(stepped: Floats, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    adjusted = np.empty_like(stepped)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


CORRECTIONS: dict[str, Callable[[Floats], Floats]] = {"holm": holm, "benjamini-hochberg": benjamini_hochberg}


def corrected(p: Sequence[float | None], method: str) -> list[float | None]:
    """P-values that allow for one another; a test that has none yet counts as one that found nothing.

    Example:
        >>> corrected([0.01, None, 0.04], "holm"), corrected([0.01], "holm"), corrected([0.01, 0.04], "none")
        ([0.03, None, 0.08], [None], [None, None])
    """
    if method not in CORRECTIONS or len(p) < 2:
        return [None] * len(p)
    found = CORRECTIONS[method](np.array([1.0 if each is None else each for each in p]))
    return [None if each is None else float(value) for each, value in zip(p, found, strict=True)]
