"""The form of a bootstrap distribution, in a few numbers: no single replicate can be told from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldaway.inference.replicates import Distribution

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are told."""

FEWEST = 200
"""Replicates for quantiles to be told: with fewer, the outer ones are single replicates, or nearly."""


class Spread(NamedTuple):
    """Quantiles at `SHARES`, and the skewness: zero for a symmetric distribution."""

    quantiles: tuple[float, ...]
    skewness: float


def spread(found: Distribution) -> Spread | None:
    """The spread of an effect over the replicates, or None where there are too few of them.

    Example:
        >>> effects = np.linspace(-1.0, 1.0, 1001)
        >>> found = spread(Distribution(effects, np.ones(1001), 0))
        >>> [round(q, 3) for q in found.quantiles], abs(round(found.skewness, 3))
        ([-0.9, -0.5, 0.0, 0.5, 0.9], 0.0)
        >>> spread(Distribution(effects[:100], np.ones(100), 0)) is None
        True
    """
    effects = found.effects
    if len(effects) < FEWEST:
        return None
    about = effects - effects.mean()
    deviation = float(np.sqrt(np.mean(about**2)))
    skewness = float(np.mean((about / deviation) ** 3)) if deviation > 0 else 0.0
    return Spread(tuple(float(q) for q in np.quantile(effects, SHARES)), skewness)
