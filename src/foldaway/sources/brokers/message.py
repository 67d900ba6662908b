"""The records in a message of a stream: JSON, newline-delimited JSON, or an Arrow stream."""

from __future__ import annotations

from email.message import Message as Header
from functools import lru_cache

import msgspec
import pyarrow as pa

from foldaway.sources.formats import json_array
from foldaway.sources.formats.arrow_body import read_arrow
from foldaway.sources.formats.arrow_claims import Damaged, TooLarge
from foldaway.sources.formats.chunk import Chunk, Unreadable, WantedColumns, join
from foldaway.sources.formats.ndjson import MALFORMED, Decoder

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
JSON = "application/json"

MOST_RECORDS = 1_000_000
MOST_BYTES = 256 * 2**20
"""What one message may hold once unpacked; more is damage, or meant to fill the memory."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def decode(body: bytes | dict[str, str], kind: str | None, wanted: WantedColumns) -> Chunk:
    r"""The records in a message.

    Args:
        body: The message; a dict is one record, its values as text.
        kind: Its media type, if the sender gave one; if not, or if it is none of ours, the first bytes tell.
        wanted: The columns to read.

    Raises:
        Unreadable: It holds no records. Nothing of the message is in the error, and no other error hangs on it.

    Example:
        >>> wanted = WantedColumns(numeric=("y",), text=("g",))
        >>> decode(b'{"g": "a",\n "y": 1.5}', None, wanted).records.to_pydict()
        {'y': [1.5], 'g': ['a']}
        >>> decode(b'{"g": "a", "y": 1.5}\n{"g": "b"}', None, wanted).records.to_pydict()
        {'y': [1.5, None], 'g': ['a', 'b']}
        >>> decode(b'[{"g": "a", "y": 1.5}]', None, wanted).records.to_pydict()
        {'y': [1.5], 'g': ['a']}
        >>> decode({"g": "a", "y": "1.5"}, None, wanted).records.to_pydict()
        {'y': ['1.5'], 'g': ['a']}
    """
    if isinstance(body, dict):
        return _flat(body, wanted)
    words = ""
    try:
        return _READERS[_kind(body, kind)](body, wanted)
    except Unreadable as error:
        words = str(error)
    except Damaged:
        words = "is not one whole Arrow stream: it is damaged or cut short"
    except (TooLarge, json_array.TooMany, MemoryError):
        words = f"holds more than {MOST_RECORDS:,} records or {MOST_BYTES:,} bytes"
    except Exception as error:  # Arrow's errors quote the values that they stumble over
        words = f"cannot be read ({type(error).__name__})"
    raise Unreadable(words)


def _kind(body: bytes, kind: str | None) -> str:
    if kind is not None:
        header = Header()
        header["Content-Type"] = kind
        if header.get_content_type() in _READERS:
            return header.get_content_type()
    if body.startswith((b"\xff\xff\xff\xff", b"ARROW1")):
        return ARROW
    return JSON if body.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"[") else NDJSON


def _arrow(body: bytes, wanted: WantedColumns) -> Chunk:
    if body.startswith(b"ARROW1"):
        raise Unreadable("is an Arrow file; send Arrow's stream form")
    table = read_arrow(bytearray(body), wanted, MOST_RECORDS, MOST_BYTES)
    return join([Chunk(records) for records in table.combine_chunks().to_batches() or [_empty(table)]])


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0)] * table.num_columns, names=table.column_names)


def _json(body: bytes, wanted: WantedColumns) -> Chunk:
    data = _text(body)
    if not data.startswith(b"["):
        data = b"[" + data + b"]"  # one record
    return json_array.batch(data, _decoder(wanted), MOST_RECORDS)


def _ndjson(body: bytes, wanted: WantedColumns) -> Chunk:
    data, decoder = _text(body), _decoder(wanted)
    # One record may be written over several lines; then the whole is one object, which several never are.
    if data.count(b"\n") and _is_object(data):
        return _json(data, wanted)
    if data.count(b"\n") >= MOST_RECORDS:
        raise json_array.TooMany
    return decoder(data)


_READERS = {ARROW: _arrow, JSON: _json, NDJSON: _ndjson}


def _text(body: bytes) -> bytes:
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("is UTF-16; send UTF-8")
    data = body.removeprefix(_BYTE_ORDER_MARK).strip()
    if not data:
        raise Unreadable("is empty")
    return data


def _is_object(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=_Anything)
    except MALFORMED:
        return False
    return True


class _Anything(msgspec.Struct):
    """Any object in JSON, nothing of it taken."""


def _flat(fields: dict[str, str], wanted: WantedColumns) -> Chunk:
    names = [name for name in wanted.names if name in fields]
    if not names:
        raise Unreadable("has none of the plan's columns")
    cells = [pa.array([fields.get(name)], pa.string()) for name in wanted.names]
    return Chunk(pa.RecordBatch.from_arrays(cells, names=list(wanted.names)))


@lru_cache(maxsize=16)
def _decoder(wanted: WantedColumns) -> Decoder:
    """Making one takes longer than reading a message."""
    return Decoder(wanted)
