"""Every refusal in the same shape: application/problem+json (RFC 9457)."""

from __future__ import annotations

from http import HTTPMethod, HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import Send

from foldaway import errors
from foldaway.errors import FoldawayError, IngestError, SequenceGap, joined
from foldaway.records.faults import FaultyBatch
from foldaway.service.http.monitoring import log_bug

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER = "1"  # seconds

_KINDS: dict[HTTPStatus, tuple[type[FoldawayError], ...]] = {
    HTTPStatus.NOT_FOUND: (errors.UnknownTrial, errors.UnknownNumber),
    HTTPStatus.CONFLICT: (errors.TrialExists, errors.EndedError, SequenceGap),
    HTTPStatus.GONE: (errors.TrialEnded,),  # and nothing else is: a device deletes what it kept for the trial
    HTTPStatus.UNPROCESSABLE_ENTITY: (
        errors.PlanError,
        errors.RecordError,
        errors.EstimateError,
        errors.MessageError,
    ),
    HTTPStatus.TOO_EARLY: (errors.TooEarly,),
    # An error of the vault: the key was changed elsewhere, and this server needs the new one.
    HTTPStatus.SERVICE_UNAVAILABLE: (errors.Conflict, errors.Unavailable, errors.VaultError),
}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, and what to do.

    Attributes:
        title: The kind of problem.
        status: The HTTP status.
        detail: A sentence for a person; never a record's value.
        faults: Counts by column and rule, where a batch was refused.
        expected: The sequence that is missing, where there is a gap.
    """

    title: str
    status: int
    detail: str
    faults: dict[str, dict[str, int]] | None = None
    expected: int | None = None


def headers_of(problem: Problem) -> dict[str, str]:
    """What such an answer says besides."""
    if problem.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return {"Retry-After": RETRY_AFTER}
    return {"WWW-Authenticate": "Bearer"} if problem.status == HTTPStatus.UNAUTHORIZED else {}


def answer(problem: Problem, **headers: str) -> Response[bytes]:
    """The response."""
    body = msgspec.json.encode(problem)
    headers |= headers_of(problem)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


async def send_problem(send: Send, problem: Problem, **headers: str) -> None:
    """The answer, past the framework."""
    await send_json(send, problem.status, problem, MEDIA_TYPE, **(headers_of(problem) | headers))


async def send_json(send: Send, status: int, content: Any, kind: str = "application/json", **headers: str) -> None:
    """An answer past the framework."""
    body = msgspec.json.encode(content)
    lines = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    lines += [(name.lower().encode(), text.encode()) for name, text in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def of_error(error: FoldawayError) -> Problem:
    """The problem that an error of ours is."""
    if isinstance(error, IngestError):
        status = HTTPStatus(error.status)
    else:
        matching = (status for status, kinds in _KINDS.items() if isinstance(error, kinds))
        status = next(matching, HTTPStatus.INTERNAL_SERVER_ERROR)
    return Problem(
        status.phrase,
        status,
        error.at_server() if isinstance(error, FaultyBatch) else str(error),
        error.faults.by_column() if isinstance(error, FaultyBatch) else None,
        error.expected if isinstance(error, SequenceGap) else None,
    )


def of_any(error: Exception, state: dict[str, Any]) -> Problem:
    """The problem that any error is, noted for the log: an error of ours has a sentence for whoever reads it.

    Anything else is a bug. Its message could hold anything, so nothing of it is told, here or in the log.
    """
    if isinstance(error, FoldawayError):
        state["error"] = type(error).__name__
        problem = of_error(error)
    else:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        problem = Problem(status.phrase, status, "The server failed; nothing of this request was kept.")
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log_bug("failed", error)
    return problem


def on_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """An error of ours, or a bug."""
    return answer(of_any(error, request.scope["state"]))


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """The framework's refusals; their details could quote the request, so only the status is told."""
    status = HTTPStatus(error.status_code)
    headers = {name: text for name, text in (error.headers or {}).items() if name.lower() == "allow"}
    detail = _PLAIN.get(status, f"{status.phrase}.")
    if status == HTTPStatus.METHOD_NOT_ALLOWED and headers and request.method in HTTPMethod.__members__:
        allowed = sorted(set(next(iter(headers.values())).split(", ")) - {HTTPMethod.OPTIONS})
        detail = f"This address does not take {request.method}; it takes {joined(allowed)}."
    return answer(Problem(status.phrase, status, detail), **headers)


NOWHERE = "There is nothing at this address: check its path, and the server's address before it."

_PLAIN = {
    HTTPStatus.BAD_REQUEST: "The request is malformed; the OpenAPI document says what is expected.",
    HTTPStatus.NOT_FOUND: NOWHERE,
    HTTPStatus.METHOD_NOT_ALLOWED: "This address does not take that method.",
}
