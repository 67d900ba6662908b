"""Small messages of many devices, taken in together: those that come while the others are at work make the next lot.

A transaction per message would cost a disk's wait each. One per lot costs no message more than it would have waited
anyway, and the more there are the larger the lots.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from foldaway.errors import IngestError
from foldaway.federated.messages import Kind, Received
from foldaway.service.http.folding_thread import FoldingThread
from foldaway.sources.formats.body import wipe

_MOST_TOGETHER = 1_000
_MOST_WAITING = 10_000
_MOST_BYTES_WAITING = 2**26


class _Waiting(NamedTuple):
    body: bytearray
    outcome: asyncio.Future[Received]


class Gathering:
    """Brings messages to the thread that folds, all that wait at a time."""

    def __init__(self, thread: FoldingThread) -> None:
        self._thread = thread
        self._waiting: dict[tuple[str, Kind], list[_Waiting]] = {}
        self._carrying: dict[tuple[str, Kind], asyncio.Task[None]] = {}
        self._bytes = 0
        self._limits: dict[str, int] = {}

    async def limit(self, name: str) -> int:
        """How long a message of the trial's devices can be; a plan never changes."""
        if name not in self._limits:
            self._limits[name] = await self._thread.run(self._thread.service.devices.most_bytes, name)
        return self._limits[name]

    def check_room(self) -> None:
        """Refuse a message before it is read, if those in hand are as many, or as large, as there is room for.

        Raises:
            IngestError: 503, to be tried again.
        """
        if sum(map(len, self._waiting.values())) >= _MOST_WAITING or self._bytes >= _MOST_BYTES_WAITING:
            raise IngestError(503, "the server has as many messages in hand as it can hold; try again in a second.")

    async def take(self, name: str, kind: Kind, body: bytearray) -> Received:
        """Hand a message in, and wait for what becomes of it; its body is wiped then."""
        try:
            self.check_room()
        except IngestError:
            wipe(body)
            raise
        self._bytes += len(body)
        key = name, kind
        waiting = _Waiting(body, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key, []).append(waiting)
        if key not in self._carrying:
            self._carrying[key] = asyncio.create_task(self._carry(*key))
        return await waiting.outcome

    async def _carry(self, name: str, kind: Kind) -> None:
        key = name, kind
        try:
            while waiting := self._waiting.pop(key, []):
                if rest := waiting[_MOST_TOGETHER:]:
                    self._waiting[key] = rest
                await self._take(name, kind, waiting[:_MOST_TOGETHER])
        finally:
            del self._carrying[key]

    async def _take(self, name: str, kind: Kind, lot: list[_Waiting]) -> None:
        receive = self._thread.service.devices.receive
        outcomes: list[Received | BaseException]
        try:
            outcomes = list(await self._thread.run(receive, name, kind, [waiting.body for waiting in lot]))
        except BaseException as error:  # each request answers for itself
            outcomes = [error] * len(lot)
        for waiting, outcome in zip(lot, outcomes, strict=True):
            self._bytes -= len(waiting.body)
            wipe(waiting.body)
            if waiting.outcome.done():  # the device has gone away
                continue
            if isinstance(outcome, Received):
                waiting.outcome.set_result(outcome)
            else:
                waiting.outcome.set_exception(outcome)
