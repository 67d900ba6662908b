"""The addresses of federated trials: what devices and sites send, and what they get."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter

from foldaway.errors import IngestError
from foldaway.federated.messages import MEDIA_TYPE, Kind, Received, encoded
from foldaway.federated.modes import most_bytes
from foldaway.service.http.access import Access, Name, sender
from foldaway.service.http.bodies import Asked, read_body, require_kind
from foldaway.service.http.documents import MessageOperation, TalliesOperation, about
from foldaway.service.http.folding_thread import FoldingThread
from foldaway.sources.formats.body import wipe

_MOST_TOGETHER = 1_000
_MOST_WAITING = 10_000
_MOST_BYTES_WAITING = 2**26

NumberHeader = Annotated[
    str,
    HeaderParameter(
        name="Foldaway-Number", pattern="^[0-9a-f]{32}$", description="16 random bytes, for this message alone."
    ),
]


_Waiting = tuple[bytearray, asyncio.Future[Received]]


class Gathering:
    """Brings small messages of many devices to the thread that folds, all that wait at a time.

    A transaction per message would cost a disk's wait each. One per lot costs no message more than it would have waited
    anyway, and the more there are the larger the lots.
    """

    def __init__(self, thread: FoldingThread) -> None:
        self._thread = thread
        self._waiting: dict[tuple[str, Kind], list[_Waiting]] = {}
        self._carrying: dict[tuple[str, Kind], asyncio.Task[None]] = {}
        self._bytes = 0
        self._limits: dict[str, int] = {}

    async def limit(self, name: str) -> int:
        """How long a message of the trial's devices can be; a plan never changes."""
        if name not in self._limits:
            self._limits[name] = most_bytes(await self._thread.run(self._thread.service.devices.plan, name))
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
        outcome: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((body, outcome))
        if key not in self._carrying:
            self._carrying[key] = asyncio.create_task(self._carry(*key))
        return await outcome

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
            outcomes = list(await self._thread.run(receive, name, kind, [body for body, _ in lot]))
        except BaseException as error:  # each request answers for itself
            outcomes = [error] * len(lot)
        for (body, waiting), outcome in zip(lot, outcomes, strict=True):
            self._bytes -= len(body)
            wipe(body)
            if waiting.done():  # the device has gone away
                continue
            if isinstance(outcome, Received):
                waiting.set_result(outcome)
            else:
                waiting.set_exception(outcome)


def device_routes(access: Access, patience: float) -> list[Any]:
    """The handlers."""
    thread, guard = access.thread, access.needs("ingest")
    service = thread.service
    gathering = Gathering(thread)

    def message(summary: str) -> dict[str, Any]:
        settings = about("devices", summary, guard, 404, 409, 410, 422, 425, body=MessageOperation)
        return {"status_code": 200, **settings}

    async def take(request: Asked, name: str, kind: Kind) -> Received:
        sender(request, federated=True)
        require_kind(request, MEDIA_TYPE)
        gathering.check_room()
        too_long = IngestError(422, "the message is longer than any of this plan can be.")
        body = await read_body(request, await gathering.limit(name), patience, too_long)
        with thread.forgetting():
            received = await gathering.take(name, kind, body)
        thread.metrics.messages.labels(kind).inc()
        return received

    @post("/v1/trials/{name:str}/enrolments", **message("A device joins"))
    async def enrol(request: Asked, name: Name) -> Received:
        return await take(request, name, "enrolments")

    @post("/v1/trials/{name:str}/moments", **message("Moments of a device's records, in mode scores"))
    async def moments(request: Asked, name: Name) -> Received:
        return await take(request, name, "moments")

    @post("/v1/trials/{name:str}/reports", **message("A device's one report"))
    async def report(request: Asked, name: Name) -> Received:
        return await take(request, name, "reports")

    published = about("devices", "What devices reply to, in mode scores", guard, 404, 409, 425)
    published["responses"][200] = ResponseSpec(
        bytes, media_type=MEDIA_TYPE, generate_examples=False, description="In MessagePack."
    )

    @get("/v1/trials/{name:str}/coefficients", media_type=MEDIA_TYPE, **published)
    async def coefficients(name: Name) -> Response[bytes]:
        return Response(encoded(await thread.run(service.devices.coefficients, name)), media_type=MEDIA_TYPE)

    @post(
        "/v1/trials/{name:str}/tallies",
        status_code=200,
        **about("devices", "A site's tallies", guard, 404, 409, 410, 422, body=TalliesOperation),
    )
    async def tallies(request: Asked, name: Name, number: NumberHeader) -> Received:
        require_kind(request, "application/octet-stream")
        async with thread.place(sender(request, federated=True)):
            body = await read_body(request, service.limits.max_body, patience)
            with thread.forgetting():
                try:
                    received = await thread.run(service.devices.receive_site, name, bytes.fromhex(number), body)
                finally:
                    wipe(body)
        thread.metrics.messages.labels("tallies").inc()
        return received

    return [enrol, moments, report, coefficients, tallies]
