"""The desk at which batches of records are handed in, and the short way to it for senders that are known.

Whoever comes to the framework's address (`record_routes`) is let in or refused there. A sender whose token, trial and
producer were let in just now would only be let in again, so it comes to the same desk past the framework. Whatever is
not as usual goes the long way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from foldaway.errors import FoldawayError, IngestError
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_inbox import Receipt
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.http import problems
from foldaway.service.http.access import Access
from foldaway.service.http.bodies import read_body
from foldaway.service.http.gathering import Gathering
from foldaway.service.http.turns import WHOSE
from foldaway.sources.formats.body import JSON, NDJSON

ROUTE = "/v1/trials/{name:str}/records"

PRODUCER = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}$"
"""A name that can stand in an address as it is."""

_NUMBER = "[1-9][0-9]{0,14}"
SEQUENCE = f"^{_NUMBER}(-{_NUMBER})?$"
"""A batch's number, or its first and last."""

_ADDRESS = re.compile(r"/v1/trials/([A-Za-z0-9._-]{1,100})/records")

# Bytes of a body that is taken in together with others, if it is text: a larger one, or one that may be packed, can
# take all the memory that there is for a batch.
_SMALL = 2**16


def numbers(producer: str | None, sequence: str | None) -> Numbers | None:
    """A batch's numbers, if it has any."""
    if (producer is None) != (sequence is None):
        raise IngestError(400, "Foldaway-Producer and Foldaway-Sequence come together or not at all.")
    if producer is None or sequence is None:
        return None
    first, last = int(sequence.partition("-")[0]), int(sequence.rpartition("-")[2])
    if first > last:
        raise IngestError(400, "Foldaway-Sequence gives the first number, then the last: 1-500.")
    return Numbers(producer, first, last)


class _Known(NamedTuple):
    name: str
    fingerprint: str
    token: str
    sent: Sent


class RecordDesk:
    """Takes batches in.

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

    async def take(self, scope: Scope, receive: Receive, name: str, token: str, sent: Sent) -> Receipt:
        """Read a body of a sender that may send it, and have it folded."""
        WHOSE.set((name, token))
        with self._thread.place(token):
            body = await read_body(scope, receive, self._service.limits.max_body, self._patience)
            with self._thread.forgetting():
                # Whatever becomes of the request, the thread finishes the batch and wipes its body.
                receipt = await self._fold(name, body, sent)
        if name not in self._service.records.uncounted:
            self._thread.metrics.records.add(receipt.folded)
        return receipt

    def _receive(self, key: tuple[str], lot: Sequence[tuple[bytearray, Sent]]) -> Sequence[Receipt | FoldawayError]:
        return self._service.records.receive(*key, lot)

    async def _fold(self, name: str, body: bytearray, sent: Sent) -> Receipt:
        if len(body) <= _SMALL and sent.media_type in (JSON, NDJSON) and sent.encoding is None:
            return await self._gathering.take((name,), body, sent)
        (outcome,) = await self._thread.run(self._service.records.receive, name, [(body, sent)])
        if isinstance(outcome, FoldawayError):
            raise outcome
        return outcome

    def in_front_of(self, app: ASGIApp) -> ASGIApp:
        """The application, which need not be asked about known senders."""

        async def run(scope: Scope, receive: Receive, send: Send) -> None:
            known = self._known(scope) if scope["type"] == ScopeType.HTTP and scope["method"] == "POST" else None
            if known is None:
                await app(scope, receive, send)
                return
            state: dict[str, Any] = scope["state"]
            scope["path_template"] = ROUTE.replace(":str", "")
            state["fingerprint"] = known.fingerprint
            headers: dict[str, str] = {}
            try:
                receipt = await self.take(scope, receive, known.name, known.token, known.sent)
                status, kind, body = status_of(receipt), JSON, msgspec.json.encode(receipt)
            except Exception as error:
                problem = problems.of_any(error, state)
                status, kind, body = problem.status, problems.MEDIA_TYPE, msgspec.json.encode(problem)
                headers = problems.headers_of(problem)
            lines = {**headers, "content-type": kind, "content-length": str(len(body))}.items()
            raw = [(name.lower().encode(), value.encode()) for name, value in lines]
            await send({"type": "http.response.start", "status": status, "headers": raw})
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return run

    def _known(self, scope: Scope) -> _Known | None:
        """Who sends what to which trial; None unless all of it is known and as usual."""
        address = _ADDRESS.fullmatch(scope["path"])
        headers = list(scope["headers"])
        fields = {name: value.decode("latin-1") for name, value in headers}
        if address is None or len(fields) < len(headers) or b"transfer-encoding" in fields:
            return None
        name = address[1]
        fingerprint = self._access.known_trial(name)
        token = self._access.known_token(fields.get(b"authorization", ""), "ingest", name)
        if fingerprint is None or token is None:
            return None
        producer, sequence = fields.get(b"foldaway-producer"), fields.get(b"foldaway-sequence")
        if producer is not None and not self._service.producers.known(name, producer, token):
            return None
        if sequence is not None and not re.fullmatch(SEQUENCE, sequence):
            return None
        try:
            its = numbers(producer, sequence)
        except IngestError:
            return None
        kind, encoding = fields.get(b"content-type", ""), fields.get(b"content-encoding")
        return _Known(name, fingerprint, token, Sent(kind, encoding, its, token))


def status_of(receipt: Receipt) -> int:
    """202 where records may be lost that nobody will send again."""
    return 200 if receipt.note is None else 202
