"""Regressions that cost digits, of kinds that NIST has no set of."""

from __future__ import annotations

import numpy as np

from foldaway.numerics.block import Floats


def polynomial(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Degree 10 far from the origin, in the manner of Filip."""
    x = rng.uniform(-9, -3, 60)
    return x[:, None] ** np.arange(11), 0.8 + 0.05 * np.sin(x) + rng.normal(0, 0.003, 60)


def nearly_collinear(rng: np.random.Generator) -> tuple[Floats, Floats]:
    a = rng.normal(size=(60, 2))
    X = np.column_stack([np.ones(60), a, a.sum(axis=1) + 1e-6 * rng.normal(size=60)])
    return X, X @ [1.0, 2, 3, 4] + rng.normal(size=60)


def large_means(rng: np.random.Generator) -> tuple[Floats, Floats]:
    X = np.column_stack([np.ones(60), 1e7 + rng.normal(size=(60, 2))])
    return X, 1e7 + X[:, 1] - X[:, 2] + rng.normal(size=60)


def large_response(rng: np.random.Generator) -> tuple[Floats, Floats]:
    X = np.column_stack([np.ones(60), rng.normal(size=(60, 3))])
    return X, 1e9 + X[:, 1] + rng.normal(size=60)


def mixed_scales(rng: np.random.Generator) -> tuple[Floats, Floats]:
    X = np.column_stack([np.ones(60), rng.normal(size=(60, 4))]) * [1, 1e-12, 1e12, 1e-5, 1e6]
    return X, X @ [1, 1e12, 1e-12, 1e5, 1e-6] + rng.normal(size=60)


HARD = [polynomial, nearly_collinear, large_means, large_response, mixed_scales]
