"""The addresses at which the leader of a trial in mode shares asks its helper."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Response, post
from litestar.params import HeaderParameter

from foldaway.errors import IngestError
from foldaway.federated.messages import MEDIA_TYPE, Closing, ReportBatch, decoded
from foldaway.service.collecting.helper_desk import HelperDesk
from foldaway.service.collecting.pair import Asks
from foldaway.service.collecting.posting import HEADER
from foldaway.service.http.access import Access, Name
from foldaway.service.http.bodies import Asked, read_body, require_kind

T = TypeVar("T", ReportBatch, Closing)

# The hash of the body, and what proves it to be the leader's.
Proof = Annotated[str, HeaderParameter(name=HEADER)]


def pair_routes(access: Access, patience: float) -> list[Any]:
    """The handlers. They take no token: the leader proves itself by its key, before any of the body is read.

    Only a leader asks here, so that the document for clients leaves them out; docs/protocol.md has what is sent.
    """
    thread = access.thread
    service = thread.service

    def route(what: Asks, kind: type[T], act: Callable[[HelperDesk, T], Any]) -> Any:
        @post("/v1/trials/{name:str}/" + what, status_code=200, media_type=MEDIA_TYPE, include_in_schema=False)
        async def take(request: Asked, name: Name, proof: Proof) -> Response[bytes]:
            require_kind(request.scope, MEDIA_TYPE)
            partner = await thread.run(service.devices.helped, name)
            asked = partner.asked(what, proof)
            body = await read_body(request.scope, request.receive, service.limits.max_body, patience)
            if sha256(body).digest() != asked:
                raise IngestError(400, "the body is not the one that the leader has sent.")

            def answer() -> bytes:
                return msgspec.json.encode(act(service.devices.helper(name), decoded(body, kind, most=None)))

            with thread.forgetting():
                content = await thread.run(answer)
            return Response(content, headers={HEADER: partner.answers(what, asked, content)})

        return take

    return [
        route("batches", ReportBatch, HelperDesk.add),
        route("closing", Closing, HelperDesk.close),
    ]
