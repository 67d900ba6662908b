"""The HTTP interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from litestar import HttpMethod, Litestar, MediaType, Request, Response, delete, get, post, route
from litestar.exceptions import HTTPException, NotFoundException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import HeaderParameter, PathParameter
from litestar.types import ASGIApp

import foldaway
from foldaway.errors import FoldawayError, IngestError
from foldaway.service.collecting.access_tokens import Issued, TokenAbout, TokenWanted
from foldaway.service.collecting.collector import Receipt
from foldaway.service.collecting.service import Answer, Created, Service, Status
from foldaway.service.http import problems
from foldaway.service.http.access import Access, Name, Needs
from foldaway.service.http.bodies import read_body, read_text
from foldaway.service.http.device_routes import device_routes, read_wanted
from foldaway.service.http.documents import (
    COMPONENTS,
    STAMPED,
    TOKEN,
    CloseOperation,
    PlanOperation,
    RecordsOperation,
    TokenOperation,
)
from foldaway.service.http.documents import refusals as refused
from foldaway.service.http.history_route import history_routes
from foldaway.service.http.logs import log_requests
from foldaway.service.http.metrics import Metrics
from foldaway.service.http.pages import page_routes
from foldaway.service.http.work import Work

# A name that can stand in an address as it is.
_PRODUCER = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}$"
Producer = Annotated[str, PathParameter(pattern=_PRODUCER, description="Who numbers the batches.")]
ProducerHeader = Annotated[
    str | None, HeaderParameter(name="Foldaway-Producer", pattern=_PRODUCER, description="Who numbers the batches.")
]
SequenceHeader = Annotated[
    int | None, HeaderParameter(name="Foldaway-Sequence", ge=1, le=2**53, description="The batch's number: 1, 2, 3, …")
]
TokenId = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{16}$", description="The token's id.")]

Asked = Request[Any, Any, Any]

_PLAN_BYTES = 2**20
_TOKEN_BYTES = 2**12


class Progress(msgspec.Struct, frozen=True):
    """A producer's last sequence that is safe whatever crashes; it goes on from the next."""

    fingerprint: str
    durable: int


def make_app(service: Service, *, quiet: bool = False, most_queued: int = 64, patience: float = 60.0) -> ASGIApp:
    """The application.

    Args:
        service: What it serves.
        quiet: Log only what fails.
        most_queued: Batches to have in hand at once; others are told to come back.
        patience: Seconds in which a body must arrive.
    """
    metrics = Metrics()
    work = Work(service, metrics, most_queued)
    access = Access(work)
    needs = access.needs

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        ticking = asyncio.create_task(work.tick())
        try:
            yield
        finally:
            ticking.cancel()
            await work.run(service.stop)
            work.end()

    app = Litestar(
        [
            _options,
            *page_routes(),
            *_operation(work),
            *_trials(work, access, patience),
            *history_routes(work, needs),
            *_records(work, needs, patience),
            *device_routes(work, needs, patience),
            *_tokens(work, access, patience),
        ],
        lifespan=[lifespan],
        exception_handlers={
            FoldawayError: problems.on_foldaway_error,
            HTTPException: problems.on_http_exception,
            Exception: problems.on_unexpected,
        },
        openapi_config=OpenAPIConfig(
            title="foldaway",
            version=foldaway.__version__,
            description="Randomised trials that keep no records.",
            components=COMPONENTS,
            path="/schema",
            render_plugins=[JsonRenderPlugin()],
        ),
        logging_config=None,
        debug=False,
    )
    return log_requests(app, metrics, quiet=quiet)


@route(["/v1/trials", "/v1/tokens"], http_method=HttpMethod.OPTIONS, status_code=204, include_in_schema=False)
async def _options() -> Response[None]:
    """What the framework would say by itself, but for addresses that take two methods it names only the first."""
    return Response(None, headers={"Allow": "GET, OPTIONS, POST"})


def _operation(work: Work) -> list[Any]:
    service, metrics = work.service, work.metrics
    about: dict[str, Any] = {"media_type": MediaType.TEXT, "tags": ["operation"]}

    @get("/health", summary="Whether the process is alive", **about)
    async def health() -> str:
        return "alive"

    @get("/ready", summary="Whether the database answers", responses=refused(503), **about)
    async def ready() -> str:
        await work.run(service.store.ping)
        return "ready"

    @get("/metrics", summary="Counts and times for Prometheus", **about)
    async def prometheus() -> str:
        metrics.pending.set(service.pending())
        return metrics.text()

    return [health, ready, prometheus]


def _trials(work: Work, access: Access, patience: float) -> list[Any]:
    service, needs = work.service, access.needs
    about: dict[str, Any] = {"security": TOKEN, "tags": ["trials"]}
    one: dict[str, Any] = {"response_headers": STAMPED, **about}

    @post(
        "/v1/trials",
        guards=[needs("admin")],
        operation_class=PlanOperation,
        summary="Register a plan",
        responses=refused(400, 401, 403, 408, 409, 413, 415, 422, 503),
        **one,
    )
    async def create(request: Asked) -> Created:
        text = await read_text(request, ("application/json", "application/toml"), _PLAN_BYTES, patience)
        made = await work.run(service.create, text)
        request.scope["state"]["fingerprint"] = made.fingerprint
        return made

    @get(
        "/v1/trials",
        guards=[access.listed],
        summary="All trials; with a token to read one, that one",
        responses=refused(401, 403, 503),
        **about,
    )
    async def trials(request: Asked) -> list[Status]:
        return await work.run(service.statuses, request.scope["state"]["trial"])

    @get(
        "/v1/trials/{name:str}",
        guards=[needs("read", "ingest")],
        summary="How a trial stands",
        responses=refused(401, 403, 404, 503),
        **one,
    )
    async def status(name: Name) -> Status:
        return await work.run(service.status, name)

    @get(
        "/v1/trials/{name:str}/plan",
        guards=[needs("read", "ingest")],
        summary="The plan",
        responses=refused(401, 403, 404, 503),
        **one,
    )
    async def plan(name: Name) -> dict[str, Any]:
        settings: dict[str, Any] = msgspec.json.decode(await work.run(service.plan, name))
        return settings

    @get(
        "/v1/trials/{name:str}/effects",
        guards=[needs("read")],
        summary="The effects so far, from durable states",
        responses=refused(401, 403, 404, 422, 425, 503),
        **one,
    )
    async def effects(name: Name) -> Answer:
        return await work.run(service.effects, name)

    @post(
        "/v1/trials/{name:str}/close",
        status_code=200,
        guards=[needs("admin")],
        operation_class=CloseOperation,
        summary="End a trial and give its final effects, or who is waited for",
        responses=refused(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 503),
        **one,
    )
    async def close(request: Asked, name: Name) -> Answer:
        return await work.run(service.close, name, await read_wanted(request, patience))

    return [create, trials, status, plan, effects, close]


def _records(work: Work, needs: Needs, patience: float) -> list[Any]:
    service, metrics = work.service, work.metrics
    about: dict[str, Any] = {
        "guards": [needs("ingest")],
        "security": TOKEN,
        "tags": ["records"],
        "response_headers": STAMPED,
    }

    @post(
        "/v1/trials/{name:str}/records",
        status_code=200,
        operation_class=RecordsOperation,
        summary="Fold a batch of records",
        responses=refused(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 503),
        **about,
    )
    async def records(
        request: Asked, name: Name, producer: ProducerHeader = None, sequence: SequenceHeader = None
    ) -> Receipt:
        if (producer is None) != (sequence is None):
            raise IngestError(400, "Foldaway-Producer and Foldaway-Sequence come together or not at all.")
        if sequence is not None and not request.headers["Foldaway-Sequence"].isdigit():
            raise IngestError(400, "Foldaway-Sequence is a whole number in digits.")  # not 1e3, which is read as one
        kind, encoding = request.headers.get("Content-Type", ""), request.headers.get("Content-Encoding")
        async with work.place(name):
            body = await read_body(request, service.limits.max_body, patience)
            try:
                # Whatever becomes of the request, the thread finishes the batch and wipes its body.
                receipt = await work.run(service.records.receive, name, body, kind, encoding, producer, sequence)
            except FoldawayError:
                metrics.refused.inc()
                raise
            finally:
                work.forget_soon()
        metrics.records.inc(receipt.folded)
        return receipt

    @get(
        "/v1/trials/{name:str}/producers/{producer:str}",
        summary="A producer's last durable sequence",
        responses=refused(400, 401, 403, 404, 503),
        **about,
    )
    async def progress(request: Asked, name: Name, producer: Producer) -> Progress:
        durable = await work.run(service.durable_sequence, name, producer)
        return Progress(request.scope["state"]["fingerprint"], durable)

    return [records, progress]


def _tokens(work: Work, access: Access, patience: float) -> list[Any]:
    service = work.service
    about: dict[str, Any] = {"guards": [access.needs("admin")], "security": TOKEN, "tags": ["tokens"]}

    @post(
        "/v1/tokens",
        operation_class=TokenOperation,
        summary="Issue a token",
        responses=refused(400, 401, 403, 404, 408, 413, 415, 503),
        **about,
    )
    async def issue(request: Asked) -> Issued:
        text = await read_text(request, ("application/json",), _TOKEN_BYTES, patience)
        try:
            wanted: TokenWanted | None = msgspec.json.decode(text, type=TokenWanted)
        except msgspec.MsgspecError:
            wanted = None
        if wanted is None or (wanted.scope == "admin") != (wanted.trial is None):
            raise IngestError(
                400, 'ask for {"scope": "admin"}, or for {"scope": "ingest" or "read", "trial": the trial\'s name}.'
            )
        return await work.run(service.tokens.issue, wanted)

    @get("/v1/tokens", summary="All tokens, without their secrets", responses=refused(401, 403, 503), **about)
    async def tokens() -> list[TokenAbout]:
        return await work.run(service.tokens.all)

    @delete(
        "/v1/tokens/{id:str}",
        summary="Revoke a token, by its id",
        responses=refused(400, 401, 403, 404, 503),
        **about,
    )
    async def revoke(id: TokenId) -> None:
        if not await access.revoke(id):
            raise NotFoundException

    return [issue, tokens, revoke]
