"""Messages folded into a trial, in order: many small ones at a time, a faulty one found and told by its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldaway.errors import RecordError
from foldaway.sources.brokers.broker import Message
from foldaway.sources.brokers.message import decode
from foldaway.sources.formats.chunk import ROWS, Chunk, Unreadable, WantedColumns, join
from foldaway.trial import Trial

Decoded = tuple[Message, Chunk | str]
"""A message with its records, or with what is wrong with it."""


def fold_messages(
    trial: Trial, messages: Sequence[Message], wanted: WantedColumns
) -> Iterator[tuple[Sequence[Message], str | None]]:
    """Fold messages into a trial, step by step as the caller asks for them.

    Yields:
        Messages that were folded, and None; or one that was refused, and what is wrong with it, without a value.

    Example:
        >>> from foldaway.plan import Plan
        >>> from foldaway.sources.runs.folding import wanted_by
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> trial = Trial(plan)
        >>> bodies = [b'{"g": "a", "y": 1}', b'{"g": "b", "y": 2}', b'{"g": "b", "y": "high"}', b'{"g": "a", "y": 3}']
        >>> messages = [Message("", (i,), body) for i, body in enumerate(bodies)]
        >>> for taken, fault in fold_messages(trial, messages, wanted_by(plan)):
        ...     print([message.place for message in taken], fault and fault.splitlines()[1])
        [(0,), (1,)] None
        [(2,)]   y: 1 wrong type
        [(3,)] None
    """
    for group in _groups(messages, wanted):
        yield from _fold(trial, group)


def _groups(messages: Sequence[Message], wanted: WantedColumns) -> Iterator[list[Decoded]]:
    """The messages, decoded, in groups that can be one batch: of the same columns and types, and not too large."""
    group: list[Decoded] = []
    schema, rows = None, 0
    for message in messages:
        found = _decoded(message, wanted)
        records = None if isinstance(found, str) else found.records
        fits = records is not None and records.schema == schema and rows + records.num_rows <= ROWS
        if group and not fits:
            yield group
            group, rows = [], 0
        group.append((message, found))
        schema = None if records is None else records.schema
        rows += 0 if records is None else records.num_rows
    if group:
        yield group


def _decoded(message: Message, wanted: WantedColumns) -> Chunk | str:
    try:
        return decode(message.body, message.kind, wanted)
    except Unreadable as error:
        return f"it {error}."


def _fold(trial: Trial, group: list[Decoded]) -> Iterator[tuple[Sequence[Message], str | None]]:
    messages = [message for message, _ in group]
    batches = [found for _, found in group if isinstance(found, Chunk)]
    if len(batches) < len(group):  # a message that cannot be read is a group of its own
        yield messages, str(group[0][1])
        return
    refusal = _refusal(trial, join(batches))
    if refusal is None:
        yield messages, None
    elif len(group) == 1:
        yield messages, refusal
    else:  # the batch was refused whole: one by one, up to whoever is to blame
        for one in group:
            yield from _fold(trial, [one])


def _refusal(trial: Trial, batch: Chunk) -> str | None:
    """Fold a batch; what is wrong with it if it was refused."""
    try:
        trial.fold(batch.records, text=True, unreadable=batch.ragged)
    except RecordError as error:
        return str(error)
    return None
