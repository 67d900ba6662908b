"""Pages of other origins: which of them browsers let in, at the addresses that senders of records and devices ask.

A browser asks before it sends anything that a page of another origin wants sent, and shows the page no answer that does
not name its origin (the Fetch standard, "CORS protocol").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from foldaway.errors import FoldawayError, IngestError
from foldaway.service.http import problems
from foldaway.service.http.monitoring import Metrics

_SENDING = re.compile(
    r"/v1/trials/[^/]+/(?:(plan|coefficients|producers/[^/]+)|(records|enrolments|moments|reports|withdrawals))"
)

_PREFLIGHT = {
    "access-control-allow-headers": "authorization, content-type, content-encoding, foldaway-producer, "
    "foldaway-sequence",
    "access-control-max-age": "7200",  # the most that Chromium keeps it
}
_SHOWN = [(b"access-control-expose-headers", b"foldaway-fingerprint, retry-after")]

_PORTS = {"http": 80, "https": 443}


def sending(path: str) -> tuple[str, str] | None:
    """The method and the route of an address that senders of records and devices ask; None of any other.

    Example:
        >>> sending("/v1/trials/checkout/reports"), sending("/v1/trials/checkout/effects")
        (('POST', '/v1/trials/{name}/reports'), None)
    """
    found = _SENDING.fullmatch(path)
    if found is None:
        return None
    asked, sent = found.groups()
    end = "producers/{producer}" if asked and asked.startswith("producers/") else asked or sent
    return "GET" if asked else "POST", f"/v1/trials/{{name}}/{end}"


def exact_origins(texts: Iterable[str]) -> frozenset[bytes]:
    """Origins as browsers write them.

    Raises:
        FoldawayError: One is not written so, and no page would ever be let in by it.

    Example:
        >>> exact_origins(["https://shop.example", "http://localhost:5173"]) == {
        ...     b"https://shop.example", b"http://localhost:5173"
        ... }
        True
    """
    found = frozenset(texts)
    for text in found:
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        usual = "" if port is None or port == _PORTS.get(parts.scheme) else f":{port}"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        if parts.scheme not in _PORTS or not host or not text.isascii() or text != f"{parts.scheme}://{host}{usual}":
            raise FoldawayError(
                f"--allow-origin cannot be {text!r}: write an origin as browsers do, such as https://shop.example or "
                "http://localhost:5173, without a path, with small letters, and with a port only if it is not the "
                "usual one."
            )
    return frozenset(text.encode() for text in found)


def open_to(app: ASGIApp, origins: frozenset[bytes], metrics: Metrics) -> ASGIApp:
    """The application, of which pages of these origins may ask what senders and devices ask, and nothing else."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == ScopeType.HTTP else {}
        origin = headers.get(b"origin")
        if origin is None:
            await app(scope, receive, send)
            return
        asked = sending(scope["path"])
        named = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
        let_in = asked is not None and origin in origins
        if scope.get("method") == "OPTIONS" and b"access-control-request-method" in headers:
            if asked is not None:
                scope["path_template"] = asked[1]
            if asked is None or not let_in:
                metrics.turned_away("origin")
                refused = IngestError(403, "pages of this origin are not let in here: see --allow-origin.")
                await problems.send_problem(send, problems.of_error(refused))
                return
            lines = {**_PREFLIGHT, "access-control-allow-methods": asked[0]}
            raw = [*named, *((name.encode(), value.encode()) for name, value in lines.items())]
            await send({"type": "http.response.start", "status": 204, "headers": raw})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return

        async def shown(message: Message) -> None:
            if let_in and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *named, *_SHOWN]
            await send(message)

        await app(scope, receive, shown)

    return run
