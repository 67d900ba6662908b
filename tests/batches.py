"""Batches to a server's collector one at a time, without HTTP; a refusal is raised."""

from __future__ import annotations

from foldaway.errors import FoldawayError
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_inbox import Arrival, Receipt, RecordInbox
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import Decoded


def receive(
    collector: RecordInbox, batch: Decoded, producer: str | None, sequence: int | None, first: int | None = None
) -> Receipt:
    """Hand one batch in."""
    numbers = None if producer is None or sequence is None else Numbers(producer, first or sequence, sequence)
    (outcome,) = collector.receive([Arrival(batch, numbers)])
    return _raised(outcome)


def send(service: Service, name: str, body: bytes, sent: Sent) -> Receipt:
    """Hand one body in."""
    (outcome,) = service.records.receive(name, [(bytearray(body), sent)])
    return _raised(outcome)


def _raised(outcome: Receipt | FoldawayError) -> Receipt:
    if isinstance(outcome, FoldawayError):
        raise outcome
    return outcome
