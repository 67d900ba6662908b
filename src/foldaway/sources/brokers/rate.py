"""How fast records come."""

from __future__ import annotations

import time
from collections import deque

_WINDOW = 5.0


class Rate:
    """Records a second, over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int) -> float:
        """Note how many there are now; how fast they have come lately."""
        now = time.monotonic()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] < now - _WINDOW:
            self._seen.popleft()
        then, before = self._seen[0]
        return round((count - before) / (now - then), 1) if now > then else 0.0
