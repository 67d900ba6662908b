"""What whoever operates a server sees: structured logs, and counts and times for Prometheus.

Logs are one JSON object per line on standard error, with the time in UTC. No query strings, no bodies, no tokens.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foldaway.account.pace import Pace
from foldaway.service.collecting.record_inbox import GivenUp

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


LOT = 100
"""The fewest events of senders that are counted together."""

# The ends of the addresses that senders ask: what is counted there would be single records.
_SENDING = re.compile(
    r"/v1/trials/\{name\}/(records|producers/\{producer\}|enrolments|moments|reports|withdrawals|tallies|coefficients)"
)


class Lot:
    """Events that are counted together: on a tick, once a hundred and some more have come, without the last of them.

    Neither the number to wait for nor the rest that stays for the next lot has a memory, so nobody who causes all of
    the events but one can tell from the counts whether that one has come.

    Args:
        pace: The server's ticks.
        count: Counts so many of those that have come.
    """

    def __init__(self, pace: Pace, count: Callable[[int], None]) -> None:
        self._pace = pace
        self._count = count
        self._waiting = 0
        self._least = LOT + pace.beyond(LOT)

    def add(self, more: int = 1) -> None:
        """So many more have come."""
        self._waiting += more

    def count(self) -> None:
        """Count them, if it is time; to be called once a tick."""
        if self._pace.at_once or self._waiting >= self._least:
            rest = min(self._pace.beyond(LOT), self._waiting)
            self._count(self._waiting - rest)
            self._waiting, self._least = rest, LOT + self._pace.beyond(LOT)


class Metrics:
    """The server's own registry.

    Attributes:
        queued: Batches in hand; told as of the last tick.
    """

    def __init__(self, pace: Pace) -> None:
        self._registry = CollectorRegistry()
        self._pace = pace
        self._tick: int | None = None
        self._lots: list[Lot] = []
        self._answered: dict[tuple[str, int], Callable[[float], None]] = {}
        self._labelled: dict[tuple[Counter, str], Lot] = {}
        self._requests = Counter(
            "foldaway_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram("foldaway_request_seconds", "Time to answer.", ["route"], registry=self._registry)
        self._received = Counter(
            "foldaway_messages_received", "Messages of devices and sites.", ["kind"], registry=self._registry
        )
        self._turned_away = Counter(
            "foldaway_requests_turned_away",
            "Requests of pages whose origin is not let in, and of senders that came too often.",
            ["for"],
            registry=self._registry,
        )
        self._queued = Gauge("foldaway_batches_queued", "Batches waiting to be folded.", registry=self._registry)
        self.records = self._lot(Counter("foldaway_records_folded", "Records folded.", registry=self._registry).inc)
        self.refused = self._lot(Counter("foldaway_batches_refused", "Batches refused.", registry=self._registry).inc)
        self.queued = 0

    def _lot(self, count: Callable[[int], None]) -> Lot:
        self._lots.append(Lot(self._pace, count))
        return self._lots[-1]

    def message(self, kind: str) -> None:
        """Count a message of a device or a site."""
        self._one_more(self._received, kind)

    def turned_away(self, reason: str) -> None:
        """Count a request that was refused for its "origin", or for the rate of its "token" or "address"."""
        self._one_more(self._turned_away, reason)

    def _one_more(self, counter: Counter, label: str) -> None:
        key = (counter, label)
        if key not in self._labelled:
            self._labelled[key] = self._lot(counter.labels(label).inc)
        self._labelled[key].add()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer: the library takes longer to find a counter by its labels than to count."""
        found = self._answered.get((route, status))
        if found is None:
            found = self._answered[route, status] = self._counted(route, status)
        found(seconds)

    def _counted(self, route: str, status: int) -> Callable[[float], None]:
        requests, took = self._requests.labels(route, str(status)), self._seconds.labels(route)
        waiting: deque[float] = deque()

        def count(answers: int) -> None:
            for _ in range(answers):
                requests.inc()
                took.observe(waiting.popleft())

        lot = self._lot(count) if _SENDING.fullmatch(route) else None

        def answered(seconds: float) -> None:
            waiting.append(seconds)
            if lot is None:
                count(1)
            else:
                lot.add()

        return answered

    def text(self) -> str:
        """In Prometheus' text format; what senders do, as of the last tick."""
        if (tick := self._pace.tick()) != self._tick:
            self._tick = tick
            self._queued.set(self.queued)
            for lot in self._lots:
                lot.count()
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
