"""How long to wait before the same is tried again."""

from __future__ import annotations

import random
from collections.abc import Iterator


def pauses(first: float, longest: float) -> Iterator[float]:
    """Seconds to wait, without end: each pause twice the last one, up to the longest.

    Each is shortened at random by up to a half, so that a thousand clients do not all come back at the same moment.

    Example:
        >>> waits = pauses(1.0, 3.0)
        >>> [0.5 * most <= next(waits) <= most for most in (1.0, 2.0, 3.0, 3.0)]
        [True, True, True, True]
    """
    while True:
        yield first * random.uniform(0.5, 1)
        first = min(2 * first, longest)
