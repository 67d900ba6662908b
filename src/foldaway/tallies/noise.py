"""Noise for a release, and what it spends: both by OpenDP, which is loaded when they are needed.

The Gaussian mechanism adds N(0, s²) to a vector that one unit can move by at most 1 in the Euclidean norm. It spends
ρ = 1/(2s²) of zero-concentrated privacy (Bun and Steinke 2016), which OpenDP converts to (ε, δ).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from foldaway.errors import EstimateError, not_installed
from foldaway.numerics.block import Floats

# Between these lies the noise of every ε and δ that a plan may have.
_LEAST, _MOST = 0.05, 1e6


@cache
def noise_scale(epsilon: float, delta: float) -> float:
    """The smallest standard deviation of noise, for a sensitivity of 1, that spends no more than ε at δ.

    Example:
        >>> round(noise_scale(1.0, 1e-6), 2)
        4.53
    """
    found = _opendp().binary_search(lambda scale: spent(scale, delta) <= epsilon, bounds=(_LEAST, _MOST))
    assert spent(found, delta) <= epsilon
    return float(found)


def spent(scale: float, delta: float) -> float:
    """ε at δ, of noise with this standard deviation for a sensitivity of 1."""
    dp = _opendp()
    approximate = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(_gaussian(scale)), delta)
    return float(approximate.map(1.0)[0])


def noisy(values: Floats, scale: float, rng: np.random.Generator | None = None) -> Floats:
    """The values with Gaussian noise of this standard deviation.

    Args:
        values: Sums.
        scale: The noise.
        rng: For simulations alone: anything that is told needs OpenDP's noise, which nobody can seed and whose
            last digits give nothing away.
    """
    if rng is not None:
        return values + scale * rng.standard_normal(values.shape)
    drawn: Floats = np.array(_gaussian(scale)(values.ravel().tolist())).reshape(values.shape)
    return drawn


@lru_cache(maxsize=8)
def _gaussian(scale: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=scale)


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ModuleNotFoundError:
        raise EstimateError(not_installed("opendp", "release")) from None
    dp.enable_features("contrib")  # the mechanisms that OpenDP has proofs for, and its own people have vetted
    return dp
