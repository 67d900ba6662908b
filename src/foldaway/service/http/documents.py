"""What the OpenAPI document cannot know by itself: bodies that are read as a stream, tokens, problems."""

from __future__ import annotations

from dataclasses import dataclass

from litestar.datastructures import ResponseHeader
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    Components,
    OpenAPIFormat,
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    RequestBody,
    Schema,
    SecurityScheme,
)

from foldaway.federated.messages import MEDIA_TYPE as MESSAGE
from foldaway.service.http.problems import MEDIA_TYPE, Problem

STAMPED = [
    ResponseHeader(
        name="Foldaway-Fingerprint", description="The plan's fingerprint.", required=True, documentation_only=True
    )
]

TOKEN: list[dict[str, list[str]]] = [{"token": []}]

COMPONENTS = Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")})

_OBJECTS = Schema(type=OpenAPIType.ARRAY, items=Schema(type=OpenAPIType.OBJECT))
_BYTES = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)


@dataclass
class RecordsOperation(Operation):
    """A batch of records, in one of three formats."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            description="Records: an Arrow IPC stream, one JSON object per line, or a JSON array of objects; as it is, "
            "or packed with gzip or zstd and a Content-Encoding that says so.",
            required=True,
            content={
                "application/json": OpenAPIMediaType(schema=_OBJECTS),
                "application/x-ndjson": OpenAPIMediaType(schema=_BYTES),
                "application/vnd.apache.arrow.stream": OpenAPIMediaType(schema=_BYTES),
            },
        )


@dataclass
class PlanOperation(Operation):
    """A plan, as JSON or TOML."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            description="A plan, as JSON or TOML.",
            required=True,
            content={
                "application/json": OpenAPIMediaType(schema=Schema(type=OpenAPIType.OBJECT)),
                "application/toml": OpenAPIMediaType(schema=_BYTES),
            },
        )


@dataclass
class MessageOperation(Operation):
    """A message of a device."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            description="A message of a device, in MessagePack: it says nothing about its sender.",
            required=True,
            content={MESSAGE: OpenAPIMediaType(schema=_BYTES)},
        )


@dataclass
class TalliesOperation(Operation):
    """A site's tallies."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            description="The state of a trial that a site has folded, of a cohort of units at least.",
            required=True,
            content={"application/octet-stream": OpenAPIMediaType(schema=_BYTES)},
        )


@dataclass
class CloseOperation(Operation):
    """How to close a trial."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            description="For trials whose records stay on devices: how many seconds reports still count, and the "
            "share of the enrolled devices that is enough. For all: whether to close one that has no effects.",
            required=False,
            content={"application/json": OpenAPIMediaType(schema=_WANTED)},
        )


_WANTED = Schema(
    type=OpenAPIType.OBJECT,
    properties={
        "deadline": Schema(type=[OpenAPIType.NUMBER, OpenAPIType.NULL], minimum=0, maximum=10**7),
        "share": Schema(type=[OpenAPIType.NUMBER, OpenAPIType.NULL], exclusive_minimum=0, maximum=1),
        "without_effects": Schema(type=OpenAPIType.BOOLEAN),
    },
    additional_properties=False,
)


@dataclass
class TokenOperation(Operation):
    """What token is wanted."""

    def __post_init__(self) -> None:
        self.request_body = RequestBody(
            description="A token for all trials, or one to send records to a trial or to read its effects.",
            required=True,
            content={"application/json": OpenAPIMediaType(schema=_TOKEN_WANTED)},
        )


_TOKEN_WANTED: Schema = Schema(
    one_of=[
        Schema(
            type=OpenAPIType.OBJECT,
            properties={"scope": Schema(const="admin"), "trial": Schema(type=OpenAPIType.NULL)},
            required=["scope"],
            additional_properties=False,
        ),
        Schema(
            type=OpenAPIType.OBJECT,
            properties={
                "scope": Schema(type=OpenAPIType.STRING, enum=["ingest", "read"]),
                "trial": Schema(type=OpenAPIType.STRING),
            },
            required=["scope", "trial"],
            additional_properties=False,
        ),
    ]
)


def refusals(*statuses: int) -> dict[int, ResponseSpec]:
    """The problems that an address may answer with."""
    return {
        status: ResponseSpec(Problem, media_type=MEDIA_TYPE, generate_examples=False, description=_WHEN[status])
        for status in statuses
    }


_WHEN = {
    400: "The request is malformed.",
    401: "No valid token.",
    403: "The token does not allow this.",
    404: "There is no such trial, or no such number is enrolled.",
    408: "The body did not arrive in time.",
    409: "The trial is of another kind, another plan has its name, or batches are missing.",
    410: "The trial is closed, and takes no more of this.",
    413: "The body is too large.",
    415: "The media type or encoding is not one of those listed.",
    422: "The batch, the message or the plan is faulty, or the tallies cannot answer; nothing was changed.",
    425: "An arm has too few durable records yet, or the trial is not being closed yet.",
    503: "Try again later.",
}

__all__ = [
    "COMPONENTS",
    "STAMPED",
    "TOKEN",
    "CloseOperation",
    "MessageOperation",
    "PlanOperation",
    "RecordsOperation",
    "TalliesOperation",
    "TokenOperation",
    "refusals",
]
