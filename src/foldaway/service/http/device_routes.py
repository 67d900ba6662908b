"""The addresses of federated trials: what devices and sites send, and what they get."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter

from foldaway.errors import FoldawayError, IngestError, instead_of
from foldaway.federated.coordinator.closing import Wanted
from foldaway.federated.messages import MEDIA_TYPE, Received, encoded
from foldaway.service.collecting.device_collector import Kind
from foldaway.service.http.access import Name, Needs
from foldaway.service.http.bodies import read_body, require_kind
from foldaway.service.http.documents import STAMPED, TOKEN, MessageOperation, TalliesOperation
from foldaway.service.http.documents import refusals as refused
from foldaway.service.http.gathering import Gathering
from foldaway.service.http.work import Work
from foldaway.sources.formats.body import wipe

Asked = Request[Any, Any, Any]
NumberHeader = Annotated[
    str,
    HeaderParameter(
        name="Foldaway-Number", pattern="^[0-9a-f]{32}$", description="16 random bytes, for this message alone."
    ),
]

_WANTED_BYTES = 2**12


async def read_wanted(request: Asked, patience: float) -> Wanted | None:
    """How to close a trial; none if the request has no body."""
    body = await read_body(request, _WANTED_BYTES, patience)
    if not body:
        return None
    require_kind(request, "application/json")
    say = 'say {"deadline": seconds, "share": above 0 and at most 1, "without_effects": true}, or some.'
    with instead_of(ValueError, IngestError(400, say)):
        return msgspec.json.decode(body, type=Wanted)


def device_routes(work: Work, needs: Needs, patience: float) -> list[Any]:
    """The handlers."""
    service, metrics = work.service, work.metrics
    gathering = Gathering(work)
    about: dict[str, Any] = {
        "guards": [needs("ingest")],
        "security": TOKEN,
        "tags": ["devices"],
        "response_headers": STAMPED,
    }
    sent: dict[str, Any] = {
        "status_code": 200,
        "operation_class": MessageOperation,
        "responses": refused(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 425, 503),
        **about,
    }

    async def take(request: Asked, name: str, kind: Kind) -> Received:
        require_kind(request, MEDIA_TYPE)
        gathering.check_room()
        too_long = IngestError(422, "the message is longer than any of this plan can be.")
        body = await read_body(request, await gathering.limit(name), patience, too_long)
        try:
            received = await gathering.take(name, kind, body)
        except FoldawayError:
            metrics.refused.inc()
            raise
        finally:
            work.forget_soon()
        metrics.messages.labels(kind).inc()
        return received

    @post("/v1/trials/{name:str}/enrolments", summary="A device joins", **sent)
    async def enrol(request: Asked, name: Name) -> Received:
        return await take(request, name, "enrolments")

    @post("/v1/trials/{name:str}/moments", summary="Moments of a device's records, in mode scores", **sent)
    async def moments(request: Asked, name: Name) -> Received:
        return await take(request, name, "moments")

    @post("/v1/trials/{name:str}/reports", summary="A device's one report", **sent)
    async def report(request: Asked, name: Name) -> Received:
        return await take(request, name, "reports")

    @get(
        "/v1/trials/{name:str}/coefficients",
        summary="What devices reply to, in mode scores",
        responses={
            200: ResponseSpec(bytes, media_type=MEDIA_TYPE, generate_examples=False, description="In MessagePack."),
            **refused(401, 403, 404, 409, 425, 503),
        },
        media_type=MEDIA_TYPE,
        **about,
    )
    async def coefficients(name: Name) -> Response[bytes]:
        published = await work.run(service.devices.coefficients, name)
        return Response(encoded(published), media_type=MEDIA_TYPE)

    @post(
        "/v1/trials/{name:str}/tallies",
        status_code=200,
        operation_class=TalliesOperation,
        summary="A site's tallies",
        responses=refused(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 503),
        **about,
    )
    async def tallies(request: Asked, name: Name, number: NumberHeader) -> Received:
        require_kind(request, "application/octet-stream")
        async with work.place(name):
            body = await read_body(request, service.limits.max_body, patience)
            try:
                received = await work.run(service.devices.receive_site, name, bytes.fromhex(number), body)
            except FoldawayError:
                metrics.refused.inc()
                raise
            finally:
                wipe(body)
                work.forget_soon()
        metrics.messages.labels("tallies").inc()
        return received

    return [enrol, moments, report, coefficients, tallies]
