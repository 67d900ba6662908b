"""What an address says of itself, and what the OpenAPI document cannot know: streamed bodies, tokens, problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litestar.datastructures import ResponseHeader
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    Components,
    OpenAPIMediaType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
    SecurityScheme,
)
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType
from litestar.types import Guard

from foldaway.federated.messages import MEDIA_TYPE as MESSAGE
from foldaway.service.http.problems import MEDIA_TYPE, Problem
from foldaway.service.keys.tokens import NAME

PRODUCER = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}$"
"""A name that can stand in an address as it is."""

_NUMBER = "[1-9][0-9]{0,14}"
SEQUENCE = f"^{_NUMBER}(-{_NUMBER})?$"
"""A batch's number, or its first and last."""

COMPONENTS = Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")})

_STAMPED = [
    ResponseHeader(
        name="Foldaway-Fingerprint", description="The plan's fingerprint.", required=True, documentation_only=True
    )
]

_WHEN = {
    400: "The request is malformed.",
    401: "No valid token; the answer names the one that is needed.",
    403: "The token does not allow this, or it is for another trial; the answer names the one that is needed.",
    404: "There is no such trial, or not of this team (a token for another trial gets 403), or no such number is "
    "enrolled.",
    408: "The body did not arrive in time.",
    409: "The trial is of another kind, another plan has its name, batches are missing, or it is the only admin token.",
    410: "The trial has ended: it takes no more records or messages, and its exact numbers are gone.",
    413: "The body is too large.",
    415: "The media type or encoding is not one of those listed.",
    422: "The batch, the message or the plan is faulty, or the tallies cannot answer; nothing was changed.",
    425: "An arm has too few durable records yet, or the trial is not ending yet.",
    503: "Try again later.",
}


def about(
    tag: str,
    summary: str,
    guard: Guard | None,
    *statuses: int,
    body: type[Operation] | None = None,
    pending: type | None = None,
    stamped: bool = True,
) -> dict[str, Any]:
    """What is said of an address that takes a token.

    Args:
        tag: The chapter it is in.
        summary: What it does.
        guard: Who may ask; None if the handler looks itself.
        statuses: How it refuses, besides for want of a token or of the database; or for a body, if it takes one.
        body: The operation that describes its body.
        pending: What it answers with 202, if it does.
        stamped: Whether it is about one trial, whose fingerprint is in every answer.
    """
    of_body = () if body is None else (408, 413, 415)
    later = "Taken, but pending: the records are lost if the server stops before their cohort is full."
    accepted = {} if pending is None else {202: ResponseSpec(pending, generate_examples=False, description=later)}
    return {
        "guards": [] if guard is None else [guard],
        "operation_class": body or Operation,
        "response_headers": _STAMPED if stamped else [],
        "responses": accepted | refusals(400, 401, 403, 503, *of_body, *statuses),
        "security": [{"token": []}],
        "summary": summary,
        "tags": [tag],
    }


def refusals(*statuses: int) -> dict[int, ResponseSpec]:
    """The problems that an address may answer with."""
    return {
        status: ResponseSpec(Problem, media_type=MEDIA_TYPE, generate_examples=False, description=_WHEN[status])
        for status in sorted(statuses)
    }


def _taking(description: str, content: dict[str, Schema], *, required: bool = True) -> type[Operation]:
    """An operation with a body, by media type."""

    @dataclass
    class Taking(Operation):
        def __post_init__(self) -> None:
            types = {media_type: OpenAPIMediaType(schema=schema) for media_type, schema in content.items()}
            self.request_body = RequestBody(types, description=description, required=required)

    return Taking


def _object(*required: str, **properties: Any) -> Schema:
    """An object with these properties and no others."""
    return Schema(
        type=OpenAPIType.OBJECT, properties=properties, required=required or None, additional_properties=False
    )


def _token(*scopes: str, **needed: Schema) -> Schema:
    """A token of these scopes, which needs these fields."""
    absent = {name: _NULL for name in ("trial", "team", "units") if name not in needed}
    return _object(
        "scope",
        *needed,
        scope=Schema(type=OpenAPIType.STRING, enum=list(scopes)),
        label=Schema(type=[OpenAPIType.STRING, OpenAPIType.NULL], min_length=1, max_length=100),
        expires_in=Schema(type=[OpenAPIType.INTEGER, OpenAPIType.NULL], minimum=1, maximum=10**10),
        **needed,
        **absent,
    )


_OBJECT = Schema(type=OpenAPIType.OBJECT)
_BYTES = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)
_NULL = Schema(type=OpenAPIType.NULL)
_NUMBER_OR_NULL = [OpenAPIType.NUMBER, OpenAPIType.NULL]

_RecordsBody: Any = _taking(
    "Records: an Arrow IPC stream, one JSON object per line, or a JSON array of objects; as it is, or packed with gzip "
    "or zstd and a Content-Encoding that says so.",
    {
        "application/json": Schema(type=OpenAPIType.ARRAY, items=_OBJECT),
        "application/x-ndjson": _BYTES,
        "application/vnd.apache.arrow.stream": _BYTES,
    },
)
_NUMBERS = {
    "Foldaway-Producer": (PRODUCER, "Who numbers the batches."),
    "Foldaway-Sequence": (
        SEQUENCE,
        "The batch's number: 1, 2, 3, …; or its first and last, 1-500, where records are numbered.",
    ),
}


@dataclass
class RecordsOperation(_RecordsBody):  # type: ignore[misc] # the class is made by a function
    """A batch of records, whose handler reads the fields of the head, and answers, by itself."""

    def __post_init__(self) -> None:
        """Add what the framework cannot see."""
        super().__post_init__()
        for name, (pattern, description) in _NUMBERS.items():
            schema = Schema(one_of=[Schema(type=OpenAPIType.STRING), _NULL], pattern=pattern, description=description)
            self.parameters.append(Parameter(name, "header", schema, description, required=False))
        self.responses["200"].content = self.responses["202"].content


PlanOperation = _taking("A plan, as JSON or TOML.", {"application/json": _OBJECT, "application/toml": _BYTES})
MessageOperation = _taking(
    "A message of a device, a JSON object that says nothing about its sender; see the protocol.",
    {MESSAGE: _OBJECT},
)
InvitationOperation = _taking(
    "How many invitations are wanted.",
    {"application/json": _object(count=Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=10_000))},
)
TalliesOperation = _taking(
    "What a site has folded, of a cohort of units at least: the state of its trial or, in mode sums, sums by group.",
    {"application/octet-stream": _BYTES},
)
EndOperation = _taking(
    "`deadline` and `share` are for trials whose records stay on devices: how many seconds reports still count, and "
    "the share of the enrolled devices that is enough. `without_effects` ends a trial even if it has no effects. "
    "`exact` answers with effects that are not rounded.",
    {
        "application/json": _object(
            deadline=Schema(type=_NUMBER_OR_NULL, minimum=0, maximum=10**7),
            share=Schema(type=_NUMBER_OR_NULL, exclusive_minimum=0, maximum=1),
            without_effects=Schema(type=OpenAPIType.BOOLEAN),
            exact=Schema(type=OpenAPIType.BOOLEAN),
        )
    },
    required=False,
)
TokenOperation = _taking(
    "A token for everything, for the server's metrics, for the trials of one team, to send records to a trial, to send "
    "a site's tallies of so many `units` at most, to invite devices, or to read a trial's effects. It may have a "
    "`label`, and an end, `expires_in` so many seconds. A team's token issues those for its trials.",
    {
        "application/json": Schema(
            one_of=[
                _token("admin", "metrics"),
                _token("team", team=Schema(type=OpenAPIType.STRING, pattern=NAME)),
                _token("ingest", "invite", "read", trial=Schema(type=OpenAPIType.STRING)),
                _token(
                    "site",
                    trial=Schema(type=OpenAPIType.STRING),
                    units=Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=10**15),
                ),
            ]
        )
    },
)
