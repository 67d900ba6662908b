"""Request bodies, in buffers of our own that can be wiped; the framework would keep its copy."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from foldaway.errors import IngestError, instead_of
from foldaway.sources.formats.body import media_type_of

Asked = Request[Any, Any, Any]

LEAST_RATE = 8 * 2**10
"""Bytes per second that a body must come with, after a start of `HEAD_START` seconds."""

HEAD_START = 5.0

_PIECE = 2**16


def field(scope: Any, name: bytes) -> str | None:
    """A field of a request's head; one that counts stands there once (`heads`)."""
    for each, value in scope["headers"]:
        if each == name:
            return str(value, "latin-1")
    return None


async def read_body(
    scope: Scope, receive: Receive, limit: int, patience: float, too_long: IngestError | None = None
) -> bytearray:
    """All of the body.

    Raises:
        IngestError: 413, unless told otherwise, if it is larger than the limit, 408 if it takes longer than our
            patience or comes too slowly, 400 if the other side went away in the middle of it.
    """
    if int(field(scope, b"content-length") or 0) > limit:
        raise too_long or _too_large(limit)
    # Large pieces are joined at the end, for what grows is copied again and again; small ones at once, for each of them
    # costs memory.
    pieces, size = list[bytes | bytearray](), 0
    begun = asyncio.get_running_loop().time()
    refusal = None
    try:
        async with asyncio.timeout(min(patience, HEAD_START)) as waiting:
            while refusal is None:
                message: Any = await receive()
                if message["type"] == "http.disconnect":
                    refusal = IngestError(400, "the connection broke in the middle of the body.")
                    break
                piece = message["body"]
                size += len(piece)
                if len(piece) >= _PIECE:
                    pieces.append(piece)
                elif pieces and len(pieces[-1]) < _PIECE:
                    pieces[-1] += piece
                else:
                    pieces.append(bytearray(piece))
                if size > limit:
                    refusal = too_long or _too_large(limit)
                elif not message["more_body"]:
                    return bytearray().join(pieces)
                waiting.reschedule(begun + min(patience, HEAD_START + size / LEAST_RATE))
    except TimeoutError:
        refusal = IngestError(
            408, f"the body did not arrive within {patience:g} seconds, or at fewer than {LEAST_RATE:,} bytes a second."
        )
    pieces.clear()  # for the error holds this frame
    assert refusal is not None
    raise refusal


def _too_large(limit: int) -> IngestError:
    return IngestError(413, f"the body is larger than {limit:,} bytes; send less at a time.")


def require_kind(scope: Any, *kinds: str) -> None:
    """Refuse a body that does not say to be of one of these media types."""
    if media_type_of(field(scope, b"content-type") or "")[0] not in kinds:
        raise IngestError(415, f"the Content-Type is not known; use {' or '.join(kinds)}.")


async def read_text(request: Asked, kinds: tuple[str, ...], limit: int, patience: float) -> str:
    """A body of UTF-8 text of one of these media types."""
    require_kind(request.scope, *kinds)
    body = await read_body(request.scope, request.receive, limit, patience)
    with instead_of(UnicodeDecodeError, IngestError(400, "the body is not UTF-8 text.")):
        return body.decode("utf-8")


def closed_if_unread(app: ASGIApp) -> ASGIApp:
    """The application; where it answers before it has read a body to its end, the connection ends with the answer."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        lengths = dict(scope["headers"])
        unread = b"transfer-encoding" in lengths or lengths.get(b"content-length", b"0") != b"0"

        async def read() -> Any:
            nonlocal unread
            message = await receive()
            unread = unread and bool(message.get("more_body", message["type"] == "http.disconnect"))
            return message

        async def write(message: Message) -> None:
            if unread and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await app(scope, read, write)

    return run
