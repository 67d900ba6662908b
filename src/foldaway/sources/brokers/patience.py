"""Waiting for a broker that is away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from foldaway.sources.brokers.broker import Away

T = TypeVar("T")

_FIRST, _LONGEST = 0.1, 10.0
_NAP = 0.1  # how often to look whether to stop


class Stopped(Exception):
    """Told to stop while the broker was away."""


class Patience:
    """Takes steps that need a broker; while it is away, waits longer and longer and connects again.

    Args:
        connect: Opens the connection; called first of all, and after every outage.
        stopping: Whether to give up waiting.
        told: Called with the seconds until the next attempt.
    """

    def __init__(
        self, connect: Callable[[], None], stopping: Callable[[], bool], told: Callable[[float], None]
    ) -> None:
        self._connect = connect
        self._stopping = stopping
        self._told = told
        self._connected = False

    def through(self, step: Callable[[], T]) -> T:
        """The step's result, however often the broker goes away meanwhile.

        Raises:
            Stopped: We are to stop, and the broker is away.
        """
        delay = _FIRST
        while True:
            try:
                if not self._connected:
                    self._connect()
                    self._connected = True
                return step()
            except Away:
                self._connected = False
            # At random, so that a thousand consumers do not all come back at the same moment.
            pause = delay * random.uniform(0.5, 1)
            self._told(pause)
            self._sleep(pause)
            delay = min(2 * delay, _LONGEST)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopping():
                raise Stopped
            time.sleep(min(left, _NAP))
        if self._stopping():
            raise Stopped
