"""Messages folded into a trial, in order: many small ones at a time, a faulty one found and told by its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from foldaway.errors import RecordError
from foldaway.sources.brokers.broker import Message
from foldaway.sources.formats.body import ARROW, JSON, NDJSON, Limits, media_type_of, read_body
from foldaway.sources.formats.chunk import ROWS, Chunk, Unreadable, WantedColumns, join
from foldaway.sources.formats.lines import BYTE_ORDER_MARK
from foldaway.sources.formats.ndjson import MALFORMED
from foldaway.trial import Trial

_ANY_OBJECT = msgspec.json.Decoder(msgspec.defstruct("Anything", []))  # of which nothing is taken
_LIMITS = Limits()  # what one message may hold; more is damage, or meant to fill the memory


def fold_messages(
    trial: Trial, messages: Sequence[Message], wanted: WantedColumns
) -> Iterator[tuple[Sequence[Message], str | None]]:
    """Fold messages into a trial, step by step as the caller asks for them.

    Yields:
        Messages that were folded, and None; or one that was refused, and what is wrong with it, without a value.

    Example:
        >>> from foldaway.plan import Plan
        >>> from foldaway.sources.formats.chunk import wanted_by
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
    group: list[tuple[Message, Chunk]] = []  # what can be one batch: of the same columns and types, and not too large
    rows = 0
    for message in messages:
        try:
            chunk, fault = decode_message(message.body, message.kind, wanted), None
        except Unreadable as error:
            chunk, fault = None, f"it {error}."
        more = 0 if chunk is None else chunk.records.num_rows
        if group and (chunk is None or chunk.records.schema != group[-1][1].records.schema or rows + more > ROWS):
            yield from _fold(trial, group)
            group, rows = [], 0
        if chunk is None:
            yield [message], fault
        else:
            group.append((message, chunk))
            rows += more
    if group:
        yield from _fold(trial, group)


def decode_message(body: bytes | dict[str, str], kind: str | None, wanted: WantedColumns) -> Chunk:
    r"""The records in a message: JSON, newline-delimited JSON, an Arrow stream, or one record alone.

    Args:
        body: The message; a dict is one record, its values as text.
        kind: Its media type, if the sender gave one; if not, or if it is none of ours, the first bytes tell.
        wanted: The columns to read.

    Raises:
        Unreadable: It holds no records. Nothing of the message is in the error, and no other error hangs on it.

    Example:
        >>> wanted = WantedColumns(numeric=("y",), text=("g",))
        >>> decode_message(b'{"g": "a",\n "y": 1.5}', None, wanted).records.to_pydict()
        {'y': [1.5], 'g': ['a']}
        >>> decode_message(b'{"g": "a", "y": 1.5}\n{"g": "b"}', None, wanted).records.to_pydict()
        {'y': [1.5, None], 'g': ['a', 'b']}
        >>> decode_message({"g": "a", "y": "1.5"}, None, wanted).records.to_pydict()
        {'y': ['1.5'], 'g': ['a']}
    """
    if isinstance(body, dict):
        if body.keys().isdisjoint(wanted.names):
            raise Unreadable("has none of the plan's columns")
        cells = [pa.array([body.get(name)], pa.string()) for name in wanted.names]
        return Chunk(pa.RecordBatch.from_arrays(cells, names=list(wanted.names)))
    media_type = _media_type(body, kind)
    if media_type != ARROW:
        body = body.removeprefix(BYTE_ORDER_MARK).strip()
        if not body:
            raise Unreadable("is empty")
        # A record alone may be written over several lines; then the whole is one object, which several never are.
        if body.startswith(b"{") and (media_type == JSON or (b"\n" in body and _is_object(body))):
            media_type, body = JSON, b"[" + body + b"]"
    return read_body(body, media_type, wanted, _LIMITS)


def _media_type(body: bytes, kind: str | None) -> str:
    named = kind if kind is None else media_type_of(kind)[0]
    if named in (ARROW, JSON, NDJSON):
        return named
    if body.startswith((b"\xff\xff\xff\xff", b"ARROW1")):
        return ARROW
    return JSON if body.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"[") else NDJSON


def _is_object(data: bytes) -> bool:
    try:
        _ANY_OBJECT.decode(data)
    except MALFORMED:
        return False
    return True


def _fold(trial: Trial, group: list[tuple[Message, Chunk]]) -> Iterator[tuple[Sequence[Message], str | None]]:
    chunk, fault = join(chunk for _, chunk in group), None
    try:
        trial.fold(chunk.records, text=True, unreadable=chunk.ragged)
    except RecordError as error:
        fault = str(error)
    if fault is None or len(group) == 1:
        yield [message for message, _ in group], fault
    else:  # the batch was refused whole: one by one, up to whoever is to blame
        for one in group:
            yield from _fold(trial, [one])
