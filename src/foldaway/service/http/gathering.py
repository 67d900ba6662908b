"""Bodies that wait for the thread which folds are brought to it together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from foldaway.errors import FoldawayError, IngestError
from foldaway.service.http.folding_thread import FoldingThread
from foldaway.service.http.turns import WHOSE
from foldaway.sources.formats.body import wipe

_MOST_TOGETHER = 1_000

# Turns of the event loop, in which whoever has come at the same time as the first is read: so many without anybody new,
# and not more than so many in all. Nobody waits for a clock.
_TURNS = 4
_MOST_TURNS = 64
_MOST_WAITING = 10_000
_MOST_BYTES_WAITING = 2**26

Key = TypeVar("Key", bound=tuple[str, ...])
"""What is brought together: a trial, and what else there is to say."""
About = TypeVar("About")
Done = TypeVar("Done")


class Gathering(Generic[Key, About, Done]):
    """Brings small bodies of many senders to the thread that folds, all that wait at a time.

    A turn of the thread, and a transaction, for each would cost a disk's wait each. One for all costs no sender more
    than it would have waited anyway, and the more there are the larger the lots.

    Args:
        thread: The thread that folds.
        receive: Takes in the bodies of one lot, each with what was said about it; for each an outcome or an error.
    """

    def __init__(
        self,
        thread: FoldingThread,
        receive: Callable[[Key, Sequence[tuple[bytearray, About]]], Sequence[Done | FoldawayError]],
    ) -> None:
        self._thread = thread
        self._receive = receive
        self._waiting: dict[Key, list[tuple[bytearray, About, asyncio.Future[Done]]]] = {}
        self._carrying: dict[Key, asyncio.Task[None]] = {}
        self._bytes = 0

    def check_room(self) -> None:
        """Refuse a body before it is read, if those in hand are as many, or as large, as there is room for.

        Raises:
            IngestError: 503, to be tried again.
        """
        if sum(map(len, self._waiting.values())) >= _MOST_WAITING or self._bytes >= _MOST_BYTES_WAITING:
            raise IngestError(503, "the server has as much in hand as it can hold; try again in a second.")

    async def take(self, key: Key, body: bytearray, about: About) -> Done:
        """Hand a body in, and wait for what becomes of it; it is wiped then, even if its sender has gone away."""
        try:
            self.check_room()
        except IngestError:
            wipe(body)
            raise
        self._bytes += len(body)
        outcome: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((body, about, outcome))
        if key not in self._carrying:
            self._carrying[key] = asyncio.create_task(self._carry(key))
        try:
            return await outcome
        finally:
            del outcome  # an error holds this frame, and would hold itself

    async def _carry(self, key: Key) -> None:
        WHOSE.set((key[0], ""))  # for all of them, not for whoever came first
        try:
            while key in self._waiting:
                await self._listen(key)
                waiting = self._waiting.pop(key)
                if rest := waiting[_MOST_TOGETHER:]:
                    self._waiting[key] = rest
                await self._take(key, waiting[:_MOST_TOGETHER])
        finally:
            del self._carrying[key]

    async def _listen(self, key: Key) -> None:
        """Let others come, for as long as they do."""
        quiet = 0
        for _ in range(_MOST_TURNS):
            before = len(self._waiting[key])
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting[key]) == before else 0
            if quiet == _TURNS:
                return

    async def _take(self, key: Key, lot: list[tuple[bytearray, About, asyncio.Future[Done]]]) -> None:
        size = sum(len(body) for body, *_ in lot)
        outcomes: Sequence[Any]
        try:
            outcomes = await self._thread.run(self._receive, key, [(body, about) for body, about, _ in lot])
            assert len(outcomes) == len(lot)  # or somebody would wait for ever
        except BaseException as error:  # each request answers for itself
            outcomes = [error] * len(lot)
        self._bytes -= size
        for (body, _, waiting), outcome in zip(lot, outcomes, strict=True):
            wipe(body)
            if waiting.done():  # the sender has gone away
                continue
            if isinstance(outcome, BaseException):
                waiting.set_exception(outcome)
            else:
                waiting.set_result(outcome)
