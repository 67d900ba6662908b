"""Request bodies to records: bytes of a stranger in, a table of the plan's columns out, within limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from functools import lru_cache, partial

import pyarrow as pa

from foldaway.errors import IngestError
from foldaway.plan import Plan
from foldaway.sources.formats import json_array
from foldaway.sources.formats.arrow_body import read_arrow
from foldaway.sources.formats.arrow_claims import Damaged, TooLarge
from foldaway.sources.formats.chunk import Chunk, Unreadable, WantedColumns, join
from foldaway.sources.formats.columns import wanted_by
from foldaway.sources.formats.decompress import codec, decompress, wipe
from foldaway.sources.formats.lines import blocks
from foldaway.sources.formats.ndjson import ARRAY, Decoder
from foldaway.sources.formats.streams import Peekable

__all__ = ["ARROW", "JSON", "NDJSON", "Decoded", "Limits", "decode", "wipe"]

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
JSON = "application/json"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Limits:
    """What one request may hold.

    Attributes:
        max_body: Bytes as they come over the network.
        max_decoded: Bytes once unpacked.
        max_records: Records.
    """

    max_body: int = 32 * 2**20
    max_decoded: int = 256 * 2**20
    max_records: int = 1_000_000


@dataclass
class Decoded:
    """The records of a request.

    Attributes:
        records: The plan's columns, as far as they were sent. They may lie in the request's own body, so the body
            is wiped after the fold, not before.
        ragged: How many lines or objects could not be read as records.
        text: Whether numbers may come as text: true, since one bad cell makes text of its column, and `foldaway
            send` must be judged by the rules of `foldaway fold`.
    """

    records: pa.Table
    ragged: int = 0
    text: bool = True
    _unpacked: bytearray = field(default_factory=bytearray, repr=False)

    def wipe(self) -> None:
        """Let go of the records and overwrite the unpacked body; the request's own body is its owner's to wipe."""
        self.records = None
        wipe(self._unpacked)


def decode(body: bytearray, content_type: str, encoding: str | None, plan: Plan, limits: Limits) -> Decoded:
    r"""The records in a request's body.

    Args:
        body: The body as it came.
        content_type: `ARROW`, `NDJSON` or `JSON` (one array of objects), possibly with ``charset=utf-8``.
        encoding: How the body is packed: gzip, zstd, or not at all.
        plan: Says which columns are wanted; no other is read.
        limits: What it may hold.

    Raises:
        IngestError: 400 if the body is not what it is said to be, 413 if it holds too much, 415 if it is said to be
            something else. Nothing of the body is in the message, and no other error hangs on it.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> lines = bytearray(b'{"group": "a", "y": 1.5, "name": "Ann"}\n{"group": "b"}\nhello\n')
        >>> found = decode(lines, NDJSON, None, plan, Limits())
        >>> found.records.to_pydict(), found.ragged
        ({'y': [1.5, None], 'group': ['a', 'b']}, 1)
    """
    read = _reader(content_type)
    packed = codec(encoding)
    if len(body) > limits.max_body:
        raise IngestError(413, f"the body is larger than {limits.max_body:,} bytes; send smaller batches.")
    if not body:
        raise IngestError(400, "the body is empty; send records.")
    unpacked = bytearray() if packed is None else decompress(body, packed, limits.max_decoded)
    plain = body if packed is None else unpacked
    try:
        if len(plain) > limits.max_decoded:
            raise _too_large(f"{limits.max_decoded:,} bytes")
        records, ragged = _attempt(partial(read, plain, wanted_by(plan), limits))
    except IngestError:
        wipe(unpacked)
        raise
    return Decoded(records, ragged, _unpacked=unpacked)


Reader = Callable[[bytearray, WantedColumns, Limits], tuple[pa.Table, int]]


def _reader(content_type: str) -> Reader:
    header = Message()
    header["Content-Type"] = content_type
    kind, charset = header.get_content_type(), header.get_param("charset")
    if kind not in _READERS or not content_type.strip():
        raise IngestError(415, f"the Content-Type is not known; use {ARROW}, {NDJSON} or {JSON}.")
    if charset is not None and str(charset).lower() not in ("utf-8", "utf8", "us-ascii"):
        raise IngestError(415, "the charset is not known; send UTF-8.")
    return _READERS[kind]


def _attempt(step: Callable[[], tuple[pa.Table, int]]) -> tuple[pa.Table, int]:
    """Take a step; whatever goes wrong in it becomes an `IngestError`.

    Errors of Arrow and others quote the values they stumble over, so ours is raised after the handler is left, and
    of an unforeseen error only the kind is told.
    """
    try:
        return step()
    except IngestError:
        raise
    except TooLarge as error:
        refusal = _too_large(str(error))
    except json_array.TooMany:
        refusal = _too_large("records than are taken at a time")
    except Unreadable as error:
        refusal = IngestError(400, f"the body {error}.")
    except Damaged:
        refusal = IngestError(
            400,
            "the body is not one whole Arrow stream: it is damaged, cut short, or goes on after the end mark; "
            "close the writer before you send.",
        )
    except MemoryError:
        refusal = IngestError(413, "the body asks for more memory than there is; send smaller batches.")
    except Exception as error:
        refusal = IngestError(400, f"the body cannot be read ({type(error).__name__}); check its Content-Type.")
    raise refusal


def _too_large(what: str) -> IngestError:
    return IngestError(413, f"the body holds more than {what}; send smaller batches.")


def _arrow(body: bytearray, wanted: WantedColumns, limits: Limits) -> tuple[pa.Table, int]:
    return read_arrow(body, wanted, limits.max_records, limits.max_decoded), 0


def _ndjson(body: bytearray, wanted: WantedColumns, limits: Limits) -> tuple[pa.Table, int]:
    _require_utf_8(body)
    if ARRAY.match(body):
        raise Unreadable(f"is one JSON array, not one object per line; send it as {JSON}")
    decoder = _decoder(wanted)
    parts = [decoder(b"")]  # so that there is one where there is no line
    count = 0
    for lines in blocks(Peekable(_Body(body)), lambda lines: lines.rfind(b"\n") + 1):
        parts.append(decoder(lines))
        count += parts[-1].records.num_rows + parts[-1].ragged
        if count > limits.max_records:
            raise _too_large(f"{limits.max_records:,} records")
    return _table(join(parts))


def _json(body: bytearray, wanted: WantedColumns, limits: Limits) -> tuple[pa.Table, int]:
    _require_utf_8(body)
    data = body[len(_BYTE_ORDER_MARK) :] if body.startswith(_BYTE_ORDER_MARK) else body
    return _table(json_array.batch(data, _decoder(wanted), limits.max_records))


_READERS: dict[str, Reader] = {ARROW: _arrow, NDJSON: _ndjson, JSON: _json}


def _table(batch: Chunk) -> tuple[pa.Table, int]:
    return pa.Table.from_batches([batch.records]), batch.ragged


def _require_utf_8(body: bytearray) -> None:
    if body.startswith(_UTF_16):
        raise Unreadable("is UTF-16; send UTF-8")


@lru_cache(maxsize=256)
def _decoder(wanted: WantedColumns) -> Decoder:
    """The decoder for these columns; making one takes longer than reading a small batch."""
    return Decoder(wanted)


class _Body:
    """The body as a file, without a copy of the whole."""

    def __init__(self, body: bytearray) -> None:
        self._body = body
        self._at = 0

    def read(self, size: int, /) -> bytes:
        with memoryview(self._body) as body:
            piece = bytes(body[self._at : self._at + size])
        self._at += len(piece)
        return piece
