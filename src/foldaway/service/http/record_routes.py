"""The addresses that records are sent to, numbered by their producers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import HeaderParameter, PathParameter

from foldaway.errors import FoldawayError, IngestError
from foldaway.service.collecting.collector import Receipt
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.http.access import Access, Name, sender
from foldaway.service.http.bodies import Asked, read_body
from foldaway.service.http.documents import RecordsOperation, about
from foldaway.service.http.gathering import Gathering
from foldaway.sources.formats.body import JSON, NDJSON

# A name that can stand in an address as it is.
_PRODUCER = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}$"
Producer = Annotated[str, PathParameter(pattern=_PRODUCER, description="Who numbers the batches.")]
ProducerHeader = Annotated[
    str | None, HeaderParameter(name="Foldaway-Producer", pattern=_PRODUCER, description="Who numbers the batches.")
]
_NUMBER = "[1-9][0-9]{0,14}"
SequenceHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Foldaway-Sequence",
        pattern=f"^{_NUMBER}(-{_NUMBER})?$",
        description="The batch's number: 1, 2, 3, …; or its first and last, 1-500, where records are numbered.",
    ),
]

# Bytes of a body that is taken in together with others, if it is text: a larger one, or one that may be packed, can
# take all the memory that there is for a batch.
_SMALL = 2**16


class Progress(msgspec.Struct, frozen=True):
    """A producer's last sequence that is safe whatever crashes, from which it goes on; none comes once it is closed."""

    fingerprint: str
    durable: int
    closed: bool


def _numbers(sequence: str) -> tuple[int, int]:
    """A batch's first and last number."""
    first, last = int(sequence.partition("-")[0]), int(sequence.rpartition("-")[2])
    if first > last:
        raise IngestError(400, "Foldaway-Sequence gives the first number, then the last: 1-500.")
    return first, last


def record_routes(access: Access, patience: float) -> list[Any]:
    """The handlers."""
    thread, guard = access.thread, access.needs("ingest")
    service = thread.service
    gathering = Gathering(thread, service.records.receive)

    async def take(name: str, body: bytearray, sent: Sent) -> Receipt:
        if len(body) <= _SMALL and sent.media_type in (JSON, NDJSON) and sent.encoding is None:
            return await gathering.take(name, body, sent)
        (outcome,) = await thread.run(service.records.receive, name, [(body, sent)])
        if isinstance(outcome, FoldawayError):
            raise outcome
        return outcome

    @post(
        "/v1/trials/{name:str}/records",
        status_code=200,
        **about(
            "records", "Fold a batch of records", guard, 404, 409, 410, 422, body=RecordsOperation, pending=Receipt
        ),
    )
    async def records(
        request: Asked, name: Name, producer: ProducerHeader = None, sequence: SequenceHeader = None
    ) -> Response[Receipt]:
        if (producer is None) != (sequence is None):
            raise IngestError(400, "Foldaway-Producer and Foldaway-Sequence come together or not at all.")
        first, last = (None, None) if sequence is None else _numbers(sequence)
        kind, encoding = request.headers.get("Content-Type", ""), request.headers.get("Content-Encoding")
        token = sender(request, federated=False)
        if producer is not None and not service.producers.known(name, producer, token):
            await thread.run(service.producers.claim, name, producer, token)
        async with thread.place(token):
            body = await read_body(request, service.limits.max_body, patience)
            with thread.forgetting():
                # Whatever becomes of the request, the thread finishes the batch and wipes its body.
                receipt = await take(name, body, Sent(kind, encoding, producer, last, first))
        thread.metrics.records.inc(receipt.folded)
        return Response(receipt, status_code=200 if receipt.note is None else 202)

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
