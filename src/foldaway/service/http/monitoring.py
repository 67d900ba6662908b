"""What whoever operates a server sees: structured logs, and counts and times for Prometheus.

Logs are one JSON object per line on standard error, with the time in UTC. No query strings, no bodies, no tokens.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foldaway.service.collecting.shard import GivenUp

_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}


Level = Literal["info", "warning", "error"]


def log(event: str, level: Level = "info", **about: Any) -> None:
    """Write one line; where the disk is full, go on without."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = msgspec.json.encode({"time": now, "level": level, "event": event, **about})
    with suppress(OSError):
        os.write(sys.stderr.fileno(), line + b"\n")  # past the buffers, which would keep what cannot be written


def log_bug(event: str, error: BaseException) -> None:
    """Say that something failed which should not, and where; its message could hold anything, so not what it says."""
    log(event, "error", error=type(error).__name__, place=place_of(error))


def log_given_up(given_up: list[GivenUp]) -> None:
    """Say which records never became durable: those with a number are still with their producers."""
    for each in given_up:
        log("given up", "warning", **msgspec.to_builtins(each))


def place_of(error: BaseException) -> str:
    """Where an error was raised, and the last line of ours on the way there."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.endswith("/foldaway/errors.py")]
    ours = [frame for frame in frames if "/foldaway/" in frame.filename]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (*ours[-1:], *frames[-1:])]
    return " > ".join(dict.fromkeys(places))


class PlainHandler(logging.Handler):
    """What libraries log, without what they would put into it: their messages may quote what they were given."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        about: dict[str, Any] = {"logger": record.name}
        if record.name.startswith("uvicorn"):  # its templates are constant
            about["message"] = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        if record.exc_info and record.exc_info[1] is not None:
            about |= {"error": type(record.exc_info[1]).__name__, "place": place_of(record.exc_info[1])}
        log("library", "error" if record.levelno >= logging.ERROR else "warning", **about)


def catch_library_logs() -> None:
    """Have libraries log through us."""
    logging.basicConfig(handlers=[PlainHandler()], level=logging.WARNING, force=True)
    logging.captureWarnings(True)


class Metrics:
    """The server's own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answered: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.requests = Counter("foldaway_requests", "Requests answered.", ["route", "status"], registry=self._registry)
        self.seconds = Histogram("foldaway_request_seconds", "Time to answer.", ["route"], registry=self._registry)
        self.records = Counter("foldaway_records_folded", "Records folded.", registry=self._registry)
        self.messages = Counter(
            "foldaway_messages_received", "Messages of devices and sites.", ["kind"], registry=self._registry
        )
        self.refused = Counter("foldaway_batches_refused", "Batches refused.", registry=self._registry)
        self.pending = Gauge("foldaway_pending", "1 while anything waits for its cohort.", registry=self._registry)
        self.queued = Gauge("foldaway_batches_queued", "Batches waiting to be folded.", registry=self._registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer: the library takes longer to find a counter by its labels than to count."""
        found = self._answered.get((route, status))
        if found is None:
            found = self.requests.labels(route, str(status)), self.seconds.labels(route)
            self._answered[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def text(self) -> str:
        """In Prometheus' text format."""
        return generate_latest(self._registry).decode()


def log_requests(app: ASGIApp, metrics: Metrics, *, quiet: bool) -> ASGIApp:
    """The application, with every answer counted, logged, and stamped with its trial's fingerprint."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0
        state: dict[str, Any] = scope.setdefault("state", {})

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"x-content-type-options", b"nosniff")]
                if not any(name.lower() == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))  # tokens and effects are for who asked
                if "fingerprint" in state:
                    headers.append((b"foldaway-fingerprint", state["fingerprint"].encode()))
                message["headers"] = headers
            await send(message)

        try:
            await app(scope, receive, stamped)
        finally:
            seconds = time.perf_counter() - start
            # The route as declared: a path as sent could hold anything. So could a method.
            route = str(scope.get("path_template") or "(none)")
            method = str(scope.get("method"))
            metrics.answered(route, status, seconds)
            if not quiet or status >= 500:
                about = {"error": state["error"]} if "error" in state else {}
                log(
                    "request",
                    "info" if status < 500 else "error",
                    method=method if method in _METHODS else "(other)",
                    route=route,
                    status=status,
                    seconds=round(seconds, 4),
                    **about,
                )

    return run
