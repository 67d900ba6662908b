"""The addresses that records are sent to, numbered by their producers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import HeaderParameter, PathParameter

from foldaway.service.collecting.record_inbox import Receipt
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.http.access import Access, Name, sender
from foldaway.service.http.bodies import Asked
from foldaway.service.http.documents import RecordsOperation, about
from foldaway.service.http.record_desk import PRODUCER, ROUTE, SEQUENCE, RecordDesk, numbers, status_of

Producer = Annotated[str, PathParameter(pattern=PRODUCER, description="Who numbers the batches.")]
ProducerHeader = Annotated[
    str | None, HeaderParameter(name="Foldaway-Producer", pattern=PRODUCER, description="Who numbers the batches.")
]
SequenceHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Foldaway-Sequence",
        pattern=SEQUENCE,
        description="The batch's number: 1, 2, 3, …; or its first and last, 1-500, where records are numbered.",
    ),
]


class Progress(msgspec.Struct, frozen=True):
    """A producer's last sequence that is safe whatever crashes, from which it goes on; none comes once it is closed."""

    fingerprint: str
    durable: int
    closed: bool


def record_routes(access: Access, desk: RecordDesk) -> list[Any]:
    """The handlers."""
    thread, guard = access.thread, access.needs("ingest")
    service = thread.service

    @post(
        ROUTE,
        status_code=200,
        **about(
            "records", "Fold a batch of records", guard, 404, 409, 410, 422, body=RecordsOperation, pending=Receipt
        ),
    )
    async def records(
        request: Asked, name: Name, producer: ProducerHeader = None, sequence: SequenceHeader = None
    ) -> Response[Receipt]:
        its = numbers(producer, sequence)
        kind, encoding = request.headers.get("Content-Type", ""), request.headers.get("Content-Encoding")
        token = sender(request, federated=False)
        if producer is not None and not service.producers.known(name, producer, token):
            await thread.run(service.producers.durable_sequence, name, producer, token)  # or it is another's
        sent = Sent(kind, encoding, its, token)
        receipt = await desk.take(request.scope, request.receive, name, token, sent)
        return Response(receipt, status_code=status_of(receipt))

    @get(
        "/v1/trials/{name:str}/producers/{producer:str}",
        **about("records", "A producer's last durable sequence", guard, 400, 404),
    )
    async def progress(request: Asked, name: Name, producer: Producer) -> Progress:
        state = request.scope["state"]
        durable = await thread.run(service.producers.durable_sequence, name, producer, state["token"].id)
        row = await thread.run(service.store.trial, name)
        return Progress(state["fingerprint"], durable, row.status == "closed")

    return [records, progress]
