"""The HTTP interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import HttpMethod, Litestar, MediaType, Response, get, route
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp

import foldaway
from foldaway.errors import FoldawayError
from foldaway.service.collecting.service import Service
from foldaway.service.http import problems
from foldaway.service.http.access import Access, token_routes
from foldaway.service.http.bodies import closed_if_unread
from foldaway.service.http.desks import in_front_of
from foldaway.service.http.device_routes import device_desks, device_routes
from foldaway.service.http.documents import COMPONENTS, about, refusals
from foldaway.service.http.folding_thread import FoldingThread
from foldaway.service.http.invitation_routes import invitation_routes
from foldaway.service.http.monitoring import Metrics, log_given_up, log_requests
from foldaway.service.http.origins import open_to
from foldaway.service.http.pages import page_routes
from foldaway.service.http.pair_routes import pair_routes
from foldaway.service.http.rates import UNLIMITED, Rates, limited
from foldaway.service.http.record_routes import RecordDesk, record_routes
from foldaway.service.http.trial_routes import trial_routes


def make_app(
    service: Service,
    *,
    quiet: bool = False,
    most_queued: int = 64,
    patience: float = 60.0,
    origins: frozenset[bytes] = frozenset(),
    rates: Rates = UNLIMITED,
) -> ASGIApp:
    """The application.

    Args:
        service: What it serves.
        quiet: Log only what fails.
        most_queued: Batches to have in hand at once; others are told to come back.
        patience: Seconds in which a body must arrive.
        origins: Those of pages in browsers that may send records and take part as devices.
        rates: How often senders may come.
    """
    metrics = Metrics(service.pace)
    thread = FoldingThread(service, metrics, most_queued)
    access = Access(thread)
    records, devices = RecordDesk(access, patience), device_desks(access, patience)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        ticking = asyncio.create_task(thread.tick())
        try:
            yield
        finally:
            ticking.cancel()
            log_given_up(await thread.run(service.stop))
            thread.end()

    app = Litestar(
        [
            _options(["/v1/trials", "/v1/tokens"], "POST"),
            _options(["/v1/trials/{name:str}"], "DELETE"),
            *page_routes(),
            *_operation(access),
            *trial_routes(access, patience),
            *record_routes(access, records),
            *device_routes(access, patience, devices),
            *invitation_routes(access, patience),
            *pair_routes(access, patience),
            *token_routes(access, patience),
        ],
        request_max_body_size=None,  # each address has a limit of its own, and reads the body itself
        lifespan=[lifespan],
        exception_handlers={
            FoldawayError: problems.on_error,
            HTTPException: problems.on_http_exception,
            Exception: problems.on_error,
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
    desks = in_front_of(app, {"records": records, **devices})
    answering = open_to(limited(desks, rates, metrics), origins, metrics)
    return log_requests(closed_if_unread(answering), metrics, quiet=quiet)


def _options(paths: list[str], second: str) -> Any:
    """What the framework would say by itself, but for addresses that take two methods it names only the first."""

    @route(paths, http_method=HttpMethod.OPTIONS, status_code=204, include_in_schema=False)
    async def options() -> Response[None]:
        return Response(None, headers={"Allow": ", ".join(sorted({"GET", "OPTIONS", second}))})

    return options


def _operation(access: Access) -> list[Any]:
    thread = access.thread
    text: dict[str, Any] = {"media_type": MediaType.TEXT, "tags": ["operation"]}

    @get("/health", summary="Whether the process is alive", **text)
    async def health() -> str:
        return "alive"

    @get("/ready", summary="Whether the database answers", responses=refusals(503), **text)
    async def ready() -> str:
        await thread.run(thread.service.store.ping)
        return "ready"

    counts = about("operation", "Counts and times for Prometheus", access.needs("metrics"), stamped=False)

    @get("/metrics", media_type=MediaType.TEXT, **counts)
    async def prometheus() -> str:
        return thread.metrics.text()

    return [health, ready, prometheus]
