"""Latencies of requests by users of two arms: made without chance, so that every package has the same rows."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

REQUESTS, USERS = 8_000, 1_600
QUANTILES = (0.25, 0.5, 0.9, 0.95)


def latencies() -> dict[str, Any]:
    """A user has five requests, which are alike; treated ones take 6 % longer."""
    user = np.arange(REQUESTS) % USERS
    treated = _spread(np.sqrt(5), USERS)[user] > 0
    log = 5 + 0.6 * _spread(np.sqrt(2), USERS)[user] + 0.8 * _spread(np.sqrt(3), REQUESTS)
    return {
        "variant": np.where(treated, "treatment", "control"),
        "user": user,
        "latency_ms": np.exp(log) * np.where(treated, 1.06, 1.0),
    }


def _spread(irrational: float, n: int) -> Any:
    """Numbers that fill a normal distribution evenly: the multiples of an irrational number, modulo 1."""
    places = np.modf((np.arange(n) + 0.5) * irrational)[0]
    return np.array([NormalDist().inv_cdf(place) for place in places])
