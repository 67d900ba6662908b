"""The addresses that records are sent to, numbered by their producers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import PathParameter
from litestar.types import Receive

from foldaway.errors import FoldawayError, IngestError
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_inbox import Receipt
from foldaway.service.collecting.record_trials import Sent, is_small
from foldaway.service.http.access import Access, Name, sender
from foldaway.service.http.bodies import Asked, field, read_body
from foldaway.service.http.desks import AtDesk, Desk
from foldaway.service.http.documents import PRODUCER, SEQUENCE, RecordsOperation, about
from foldaway.service.http.gathering import Gathering

Producer = Annotated[str, PathParameter(pattern=PRODUCER, description="Who numbers the batches.")]


class Progress(msgspec.Struct, frozen=True):
    """A producer's last sequence that is safe whatever crashes, from which it goes on; none comes once it has ended."""

    fingerprint: str
    durable: int
    ended: bool


def numbers(producer: str | None, sequence: str | None) -> Numbers | None:
    """A batch's numbers, if it has any.

    Raises:
        IngestError: They are not written as they must be, or one of the two is missing.

    Example:
        >>> numbers("till-7", "1-500"), numbers(None, None)
        (Numbers(producer='till-7', first=1, last=500), None)
    """
    if producer is None and sequence is None:
        return None
    if producer is None or sequence is None:
        raise IngestError(400, "Foldaway-Producer and Foldaway-Sequence come together or not at all.")
    if re.fullmatch(PRODUCER, producer) is None:
        raise IngestError(
            400, "Foldaway-Producer is a name of at most 200 letters, digits and the characters . _ : @ + and -."
        )
    if re.fullmatch(SEQUENCE, sequence) is None:
        raise IngestError(400, "Foldaway-Sequence is a number from 1, or the first and the last: 1-500.")
    first, last = int(sequence.partition("-")[0]), int(sequence.rpartition("-")[2])
    if first > last:
        raise IngestError(400, "Foldaway-Sequence gives the first number, then the last: 1-500.")
    return Numbers(producer, first, last)


class RecordDesk(Desk):
    """Where batches are handed in.

    Args:
        access: Who may come.
        patience: Seconds in which a body must arrive.
    """

    def __init__(self, access: Access, patience: float) -> None:
        self._access = access
        self._thread = access.thread
        self._service = access.thread.service
        self._patience = patience
        self._gathering = Gathering(access.thread, self._receive)

    async def take(self, scope: Any, receive: Receive) -> tuple[int, Receipt]:
        """Take a batch; 202 where records may be lost that nobody will send again."""
        await self._access.admit(scope, ("ingest",))
        its = numbers(field(scope, b"foldaway-producer"), field(scope, b"foldaway-sequence"))
        token, name = sender(scope, federated=False), scope["path_params"]["name"]
        if its is not None and not self._service.producers.known(name, its.producer, token):
            # Or it is another's.
            await self._thread.run(self._service.producers.durable_sequence, name, its.producer, token)
        sent = Sent(field(scope, b"content-type") or "", field(scope, b"content-encoding"), its, token)
        with self._thread.place(token):
            body = await read_body(scope, receive, self._service.limits.max_body, self._patience)
            with self._thread.forgetting():
                receipt = await self._fold(name, body, sent)
        if name not in self._service.records.uncounted:
            self._thread.metrics.records.add(receipt.folded)
        return 200 if receipt.note is None else 202, receipt

    async def _fold(self, name: str, body: bytearray, sent: Sent) -> Receipt:
        """Whatever becomes of the request, the thread finishes the batch and wipes its body."""
        if is_small(body, sent):
            return await self._gathering.take((name,), body, sent)
        (outcome,) = await self._thread.run(self._receive, (name,), [(body, sent)])
        if isinstance(outcome, FoldawayError):
            raise outcome
        return outcome

    def _receive(self, key: tuple[str], lot: Sequence[tuple[bytearray, Sent]]) -> Sequence[Receipt | FoldawayError]:
        return self._service.records.receive(*key, lot)


def record_routes(access: Access, desk: RecordDesk) -> list[Any]:
    """The handlers."""
    thread, service = access.thread, access.thread.service
    settings = about(
        "records", "Fold a batch of records", None, 404, 409, 410, 422, body=RecordsOperation, pending=Receipt
    )

    @post("/v1/trials/{name:str}/records", status_code=200, **settings)
    async def records(name: Name) -> Response[Receipt]:
        return AtDesk(desk)

    @get(
        "/v1/trials/{name:str}/producers/{producer:str}",
        **about("records", "A producer's last durable sequence", access.needs("ingest"), 400, 404),
    )
    async def progress(request: Asked, name: Name, producer: Producer) -> Progress:
        state = request.scope["state"]
        durable = await thread.run(service.producers.durable_sequence, name, producer, state["token"].id)
        row = await thread.run(service.store.trial, name)
        return Progress(state["fingerprint"], durable, row.status == "ended")

    return [records, progress]
