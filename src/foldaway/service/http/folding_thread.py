"""The one thread that folds and talks to the database, and the queue before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from foldaway.errors import FoldawayError, IngestError
from foldaway.forgetting.harden import forget_now
from foldaway.service.collecting.service import Service
from foldaway.service.http.monitoring import Metrics, log, log_bug, log_given_up
from foldaway.service.http.turns import WHOSE, Turns

T = TypeVar("T")

_FORGET_AFTER = 0.5  # seconds, in which the answer is sent and the request let go


class FoldingThread:
    """Runs what blocks in a thread of its own, one task after the other, by turns."""

    def __init__(self, service: Service, metrics: Metrics, most_queued: int) -> None:
        self.service = service
        self.metrics = metrics
        self._most_queued = most_queued
        self._held: dict[str, int] = {}  # by token; those that hold none are not in it
        self._taken = 0
        self._forgetting: asyncio.TimerHandle | None = None
        self._thread = Turns("fold")

    @contextmanager
    def place(self, token: str) -> Iterator[None]:
        """A place in the queue for one batch of this token's, from its first byte; who finds none is told to come back.

        A token may hold half of the places that the others leave free, so that none can keep the others out.
        """
        held = self._held.get(token, 0)
        if held >= max(1, (self._most_queued - self._taken + held) // 2) or self._taken >= self._most_queued:
            raise IngestError(
                503, "the server has as many batches of this token in hand as it can hold; try again in a second."
            )
        self._hold(token, 1)
        try:
            yield
        finally:
            self._hold(token, -1)

    def _hold(self, token: str, more: int) -> None:
        self._taken += more
        self._held[token] = self._held.get(token, 0) + more
        if not self._held[token]:
            del self._held[token]
        self.metrics.queued = self._taken

    async def run(self, task: Callable[..., T], *arguments: Any) -> T:
        """Run a task in the thread, when it is the turn of whom it is for."""
        return await asyncio.wrap_future(self._thread.submit(partial(task, *arguments), WHOSE.get()))

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Take a batch or a message in: count a refusal, and forget soon what it has left."""
        try:
            yield
        except FoldawayError:
            self.metrics.refused.add()
            raise
        finally:
            self._forget_soon()

    def _forget_soon(self) -> None:
        """Have what batches and messages have left overwritten, once for all that come within half a second."""
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(_FORGET_AFTER, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        self._thread.submit(forget_now)

    async def tick(self) -> None:
        """Every second, for ever, what is due. Whatever fails is tried again a second later."""
        while True:
            await asyncio.sleep(1)
            try:
                while await self.run(self.service.tick):
                    pass  # batches have their turn
            except FoldawayError as error:
                log("tick", "warning", error=type(error).__name__)
            except Exception as error:
                log_bug("tick", error)
            log_given_up(self.service.records.given_up())

    def end(self) -> None:
        """Wait for the thread's last task."""
        self._thread.end()
