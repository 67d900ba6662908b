"""The addresses of federated trials: what devices and sites send, and what they get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import get, post
from litestar.params import HeaderParameter

from foldaway.errors import IngestError
from foldaway.federated.messages import MEDIA_TYPE, Kind, PublishedCoefficients, Received
from foldaway.federated.modes import most_bytes
from foldaway.service.collecting.device_inbox import Outcome
from foldaway.service.http.access import Access, Name, sender
from foldaway.service.http.bodies import Asked, read_body, require_kind
from foldaway.service.http.documents import MessageOperation, TalliesOperation, about
from foldaway.service.http.gathering import Gathering
from foldaway.sources.formats.body import wipe

NumberHeader = Annotated[
    str,
    HeaderParameter(
        name="Foldaway-Number", pattern="^[0-9a-f]{32}$", description="16 random bytes, for this message alone."
    ),
]

# What the OpenAPI document calls each kind of message, and says of it.
_MESSAGES: dict[Kind, tuple[str, str]] = {
    "enrolments": ("V1TrialsNameEnrolmentsEnrol", "A device joins"),
    "moments": ("V1TrialsNameMomentsMoments", "Moments of a device's records, in mode scores"),
    "reports": ("V1TrialsNameReportsReport", "A device's one report"),
}


def device_routes(access: Access, patience: float) -> list[Any]:
    """The handlers."""
    thread, guard, for_sites = access.thread, access.needs("ingest"), access.needs("site")
    service = thread.service
    limits: dict[str, int] = {}

    def receive(key: tuple[str, Kind], lot: Sequence[tuple[bytearray, None]]) -> list[Outcome]:
        return service.devices.receive(*key, [body for body, _ in lot])

    gathering = Gathering(thread, receive)

    async def longest(name: str) -> int:
        """How long a message of the trial's devices can be; a plan never changes."""
        if name not in limits:
            limits[name] = most_bytes(await thread.run(service.devices.plan, name))
        return limits[name]

    def messages(kind: Kind) -> Any:
        operation, summary = _MESSAGES[kind]
        settings = about("devices", summary, guard, 404, 409, 410, 422, 425, body=MessageOperation)

        @post("/v1/trials/{name:str}/" + kind, operation_id=operation, status_code=200, **settings)
        async def take(request: Asked, name: Name) -> Received:
            sender(request.scope, federated=True)
            require_kind(request, MEDIA_TYPE)
            gathering.check_room()
            too_long = IngestError(422, "the message is longer than any of this plan can be.")
            body = await read_body(request.scope, request.receive, await longest(name), patience, too_long)
            with thread.forgetting():
                received = await gathering.take((name, kind), body, None)
            if name not in service.devices.uncounted:
                thread.metrics.message(kind)
            return received

        return take

    published = about("devices", "What devices reply to, in mode scores", guard, 404, 409, 425)

    @get("/v1/trials/{name:str}/coefficients", **published)
    async def coefficients(name: Name) -> PublishedCoefficients:
        return await thread.run(service.devices.coefficients, name)

    @post(
        "/v1/trials/{name:str}/tallies",
        status_code=200,
        **about("devices", "A site's tallies", for_sites, 404, 409, 410, 422, body=TalliesOperation),
    )
    async def tallies(request: Asked, name: Name, number: NumberHeader) -> Received:
        require_kind(request, "application/octet-stream")
        token = sender(request.scope, federated=True)
        with thread.place(token):
            body = await read_body(request.scope, request.receive, service.limits.max_body, patience)
            with thread.forgetting():
                try:
                    received = await thread.run(service.devices.receive_site, name, bytes.fromhex(number), body, token)
                finally:
                    wipe(body)
        if name not in service.devices.uncounted:
            thread.metrics.message("tallies")
        return received

    return [*map(messages, _MESSAGES), coefficients, tallies]
