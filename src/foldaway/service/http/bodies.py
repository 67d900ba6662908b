"""Request bodies, in buffers of our own that can be wiped; the framework would keep its copy."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request
from litestar.exceptions import InternalServerException

from foldaway.errors import IngestError, instead_of
from foldaway.sources.formats.body import media_type_of, wipe

Asked = Request[Any, Any, Any]


async def read_body(request: Asked, limit: int, patience: float, too_long: IngestError | None = None) -> bytearray:
    """All of the body.

    Raises:
        IngestError: 413, unless told otherwise, if it is larger than the limit, 408 if it takes longer than our
            patience, 400 if the other side went away in the middle of it.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    refusal = too_long or IngestError(
                        413, f"the body is larger than {limit:,} bytes; send less at a time."
                    )
                    break
            else:
                return body
    except TimeoutError:
        refusal = IngestError(408, f"the body did not arrive within {patience:g} seconds.")
    except InternalServerException:
        refusal = IngestError(400, "the connection broke in the middle of the body.")
    wipe(body)
    raise refusal


def require_kind(request: Asked, *kinds: str) -> None:
    """Refuse a body that does not say to be of one of these media types."""
    if media_type_of(request.headers.get("Content-Type", ""))[0] not in kinds:
        raise IngestError(415, f"the Content-Type is not known; use {' or '.join(kinds)}.")


async def read_text(request: Asked, kinds: tuple[str, ...], limit: int, patience: float) -> str:
    """A body of UTF-8 text of one of these media types."""
    require_kind(request, *kinds)
    body = await read_body(request, limit, patience)
    with instead_of(UnicodeDecodeError, IngestError(400, "the body is not UTF-8 text.")):
        return body.decode("utf-8")
