"""When what others can see of a trial may change: on a coarse tick, and not at a single record.

Whoever sends all units of a cohort but one could otherwise watch for the one that fills it: in the receipts of their
own batches, in a status or an answer. So what came in small batches is stored on a tick, and only after a number of
records beyond the cohort that is drawn anew for each write. One record more then makes a write on the next tick
likelier by one in about a cohort, whatever else was sent. A batch that holds a cohort by itself is stored at once:
whether it does so depends on nothing but itself.
"""

from __future__ import annotations

import math
import time
from itertools import count
from random import SystemRandom

from foldaway.keeping.cohort import CohortSettings, Newcomers, may_write

TICK = 60.0
"""Seconds between two ticks, unless a server is told otherwise."""

_RANDOM = SystemRandom()


def beyond(cohort: int) -> int:
    """A number drawn from the geometric distribution, whose mean is about a cohort.

    It has no memory: however many records have come in vain, the next one is as likely to be the last as the first was.
    """
    return int(math.log(1.0 - _RANDOM.random()) / math.log1p(-1.0 / cohort)) if cohort > 1 else 0


class Pace:
    """The ticks of a server, which are those of the clock, so that all servers of a database have the same.

    Args:
        seconds: Between two ticks; with 0 there are none, and everything is stored and told at once.

    Example:
        >>> pace = Pace(60)
        >>> pace.begin(125.3), pace.at_once, Pace().at_once
        (120.0, False, True)
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._looks = count()

    @property
    def at_once(self) -> bool:
        """Whether there are no ticks."""
        return not self._seconds

    def tick(self) -> int:
        """The number of the present tick."""
        return next(self._looks) if self.at_once else int(time.time() // self._seconds)

    def begin(self, seconds: float) -> float:
        """The beginning of the tick that a time lies in, both in seconds since 1970."""
        return seconds if self.at_once else seconds // self._seconds * self._seconds

    def beyond(self, cohort: int) -> int:
        """How many records to wait for once a cohort has come."""
        return 0 if self.at_once else beyond(cohort)


class Waiting:
    """How long what is pending waits to be stored.

    Attributes:
        pace: The server's ticks.
        alone: Whether one of the pending batches holds a cohort by itself.
    """

    def __init__(self, settings: CohortSettings, pace: Pace) -> None:
        self.pace = pace
        self.alone = False
        self._settings = settings
        self._beyond = pace.beyond(settings.cohort)
        self._full: int | None = None  # how many records had come when the cohort was first seen to be full

    def came(self, own: Newcomers, pending: Newcomers) -> None:
        """A batch with newcomers of its own was added to what is pending."""
        self.alone = self.alone or may_write(self._settings, own)
        if self._full is None and may_write(self._settings, pending):
            self._full = pending.records

    def is_over(self, pending: Newcomers, *, on_tick: bool) -> bool:
        """Whether what is pending may be stored now."""
        if self.alone or not (on_tick or self.pace.at_once):
            return self.alone
        self.came(Newcomers(), pending)
        if self._full is None or not may_write(self._settings, pending):  # a device may have withdrawn since
            return False
        return pending.records >= self._full + self._beyond
