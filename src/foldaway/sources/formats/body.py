"""Bytes of a stranger to records: a request's body or a message in, the plan's columns out, within limits.

Errors of Arrow and others quote the values they stumble over. Whatever goes wrong here becomes an `Unreadable` that
tells the rule, or the kind of an unforeseen error, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message as Header
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa

from foldaway.errors import IngestError, instead_of
from foldaway.numerics.threads import cores, on_threads
from foldaway.plan import Plan
from foldaway.sources.formats.arrow import read_arrow
from foldaway.sources.formats.chunk import Chunk, TooLarge, Unreadable, WantedColumns, join, too_large, wanted_by
from foldaway.sources.formats.lines import BLOCK, BYTE_ORDER_MARK
from foldaway.sources.formats.ndjson import ARRAY, MALFORMED, Decoder

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
JSON = "application/json"

ANY_RATIO = 2**20
"""Bytes that may come out of a body however small it was."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CODECS = {"": None, "identity": None, "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_STEP = 2**20
_LEAST_BLOCK = 2**18  # bytes for which a thread is worth its while
_ZEROS = memoryview(bytes(2**16))


@dataclass(frozen=True)
class Limits:
    """What one request or message may hold.

    Attributes:
        max_body: Bytes as they come over the network; who reads them there goes by it.
        max_decoded: Bytes once unpacked.
        max_ratio: How many times as long a body may be once unpacked, beyond `ANY_RATIO` bytes.
        max_records: Records.
        max_slow: Records of a body that cannot be read the fast way: not all of its lines are objects as expected, or
            numbers come as text.
    """

    max_body: int = 32 * 2**20
    max_decoded: int = 64 * 2**20
    max_ratio: int = 100
    max_records: int = 1_000_000
    max_slow: int = 20_000

    def unpacked(self, packed: int) -> int:
        """How many bytes may come out of so many."""
        return min(self.max_decoded, max(ANY_RATIO, self.max_ratio * packed))


@dataclass
class Decoded:
    """The records of a request.

    Attributes:
        records: The plan's columns, as far as they were sent. They may lie in the request's own body, so the body
            is wiped after the fold, not before.
        ragged: How many lines or objects could not be read as records.
    """

    records: pa.RecordBatch | pa.Table
    ragged: int = 0
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
        >>> batch = decode(lines, NDJSON, None, plan, Limits())
        >>> batch.records.to_pydict(), batch.ragged
        ({'y': [1.5, None], 'group': ['a', 'b']}, 1)
    """
    media_type, charset = media_type_of(content_type)
    if media_type not in _READERS or not content_type.strip():
        raise IngestError(415, f"the Content-Type is not known; use {ARROW}, {NDJSON} or {JSON}.")
    if charset is not None and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise IngestError(415, "the charset is not known; send UTF-8.")
    codec = _codec(encoding)
    if not body:
        raise IngestError(400, "the body is empty; send records.")
    unpacked = bytearray()
    try:
        with instead_of(Unreadable, _with_status):
            if codec is not None:
                _unpack(body, codec, unpacked, limits.unpacked(len(body)))
            chunk = read_body(body if codec is None else unpacked, media_type, wanted_by(plan), limits)
    except BaseException:
        wipe(unpacked)
        raise
    return Decoded(chunk.records, chunk.ragged, _unpacked=unpacked)


def decode_together(bodies: Mapping[int, tuple[bytearray, str]], plan: Plan, most_records: int) -> dict[int, Decoded]:
    """The records of small bodies in `NDJSON` or `JSON`, read as one: a table costs more to make than to fill.

    Args:
        bodies: Each with its media type, by any number.
        plan: Says which columns are wanted.
        most_records: How many to read together.

    Returns:
        The records of each body in which all is as expected, by the same numbers; the others are for `decode`.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> bodies = {0: (bytearray(b'[{"group": "a", "y": 1}]'), JSON), 1: (bytearray(b"hello"), JSON)}
        >>> {number: batch.records.to_pylist() for number, batch in decode_together(bodies, plan, 100).items()}
        {0: [{'y': 1.0, 'group': 'a'}]}
    """
    decoder = _decoder(wanted_by(plan))
    readers: dict[str, Callable[[bytearray], list[Any]]] = {JSON: decoder.read_array, NDJSON: decoder.read_lines}
    rows: list[Any] = []
    sizes: dict[int, int] = {}
    for number, (body, media_type) in bodies.items():
        if body.count(b"{") > most_records:
            continue
        try:
            read = readers[media_type](body)
        except MALFORMED:
            continue
        if read and len(rows) + len(read) <= most_records:
            rows += read
            sizes[number] = len(read)
    records = decoder.chunk(rows).records
    ends = accumulate(sizes.values())
    return {
        number: Decoded(records.slice(end - size, size))
        for (number, size), end in zip(sizes.items(), ends, strict=True)
    }


def _with_status(error: Unreadable) -> IngestError:
    return IngestError(413 if isinstance(error, TooLarge) else 400, f"the body {error}.")


def read_body(body: bytes | bytearray, media_type: str, wanted: WantedColumns, limits: Limits) -> Chunk:
    """The wanted columns of the records in a body that is not packed, of one of the three media types.

    Raises:
        TooLarge: It holds more than it may.
        Unreadable: It is not what it is said to be. Nothing of the body is in the error, and no other hangs on it.

    Example:
        >>> wanted = WantedColumns(numeric=("y",), text=("g",))
        >>> read_body(b'[{"y": 1.5, "g": "a"}, {"g": "b"}]', JSON, wanted, Limits()).records.to_pydict()
        {'y': [1.5, None], 'g': ['a', 'b']}
    """
    with instead_of(Exception, _unreadable):
        if len(body) > limits.max_decoded:
            raise too_large(f"{limits.max_decoded:,} bytes")
        chunk = _READERS[media_type](body, wanted, limits)
        numeric = [name for name in wanted.numeric if name not in wanted.either]
        if any(name in chunk.records.schema.names and _is_text(chunk, name) for name in numeric):
            _require_few_slow(chunk.records.num_rows, limits)
        return chunk


def _unreadable(error: Exception) -> Unreadable:
    if isinstance(error, Unreadable):
        return type(error)(str(error))  # without its own traceback
    if isinstance(error, MemoryError):
        return too_large("there is memory for")
    return Unreadable(f"cannot be read ({type(error).__name__}); check its Content-Type")


def _is_text(chunk: Chunk, name: str) -> bool:
    kind = chunk.records.schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _require_few_slow(count: int, limits: Limits) -> None:
    if count > limits.max_slow:
        raise too_large(f"{limits.max_slow:,} records, some of which have to be read the slow way, one by one")


def _arrow(body: bytes | bytearray, wanted: WantedColumns, limits: Limits) -> Chunk:
    if body.startswith(b"ARROW1"):
        raise Unreadable("is an Arrow file; send Arrow's stream form")
    return Chunk(read_arrow(body, wanted, limits.max_records, limits.max_decoded))


def _ndjson(body: bytes | bytearray, wanted: WantedColumns, limits: Limits) -> Chunk:
    _require_utf_8(body)
    if ARRAY.match(body):
        raise Unreadable(f"is one JSON array, not one object per line; send it as {JSON}")
    if body.count(b"\n") > limits.max_records:  # blank ones too: to take them apart takes as long
        raise too_large(f"{limits.max_records:,} records")
    decoder = _decoder(wanted)
    chunks, count, slow = [], 0, 0
    with memoryview(body) as text:
        for cuts in _cuts(body):
            for chunk in on_threads(lambda start, stop: decoder(text[start:stop], most_slow=limits.max_slow), cuts):
                chunks.append(chunk)
                slow += chunk.slow
                _require_few_slow(slow, limits)
                count += chunk.records.num_rows + chunk.ragged
            if count > limits.max_records:
                raise too_large(f"{limits.max_records:,} records")
    found = join(chunks or [decoder(b"")])
    if not found.records.num_rows and body.find(b"\n", 0, len(body) - 1) < 0 and _SEVERAL.search(body) is not None:
        raise Unreadable(
            "has several objects in one line; with curl, --data-binary keeps the ends of lines and -d does not"
        )
    return found


# One object after another.
_SEVERAL = re.compile(rb"\}\s*\{")


def _cuts(body: bytes | bytearray) -> Iterator[list[int]]:
    """Where to cut lines into blocks of about the same size, as many at a time as there are cores."""
    size = max(_LEAST_BLOCK, min(BLOCK, len(body)) // cores() + 1)
    cuts = [len(BYTE_ORDER_MARK) if body.startswith(BYTE_ORDER_MARK) else 0]
    while cuts[-1] < len(body):
        cuts.append(body.find(b"\n", cuts[-1] + size) + 1 or len(body))
        if len(cuts) > cores():
            yield cuts
            cuts = cuts[-1:]
    if len(cuts) > 1:
        yield cuts


def _json(body: bytes | bytearray, wanted: WantedColumns, limits: Limits) -> Chunk:
    _require_utf_8(body)
    data = body[len(BYTE_ORDER_MARK) :] if body.startswith(BYTE_ORDER_MARK) else body
    if data.count(b"{") > limits.max_records and _has_more(data, limits.max_records):
        raise too_large(f"{limits.max_records:,} records")
    decoder = _decoder(wanted)
    if (rows := _array_of(decoder.expected, data)) is not None:
        return decoder.chunk(rows)
    if data.count(b"{") > limits.max_slow and _has_more(data, limits.max_slow):
        _require_few_slow(limits.max_slow + 1, limits)
    if (rows := _array_of(decoder.anything, data)) is not None:
        return decoder.chunk_of_anything(rows)
    raise Unreadable("is not one JSON array of objects, such as [{…}, {…}]; a single record is an array of one")


_READERS: dict[str, Callable[[bytes | bytearray, WantedColumns, Limits], Chunk]] = {
    ARROW: _arrow,
    NDJSON: _ndjson,
    JSON: _json,
}


def _array_of(kind: Any, data: bytes | bytearray) -> list[Any] | None:
    try:
        rows: list[Any] = msgspec.json.decode(data, type=list[kind])
    except MALFORMED:
        return None
    return rows


def _has_more(data: bytes | bytearray, most: int) -> bool:
    """Whether an array has more objects; those inside of others do not count, so braces cannot tell.

    No more memory is used to find out than so many objects need.
    """
    objects = 0

    def count(_: Any) -> None:
        nonlocal objects
        objects += 1
        if objects > most:
            raise ValueError("enough")

    _array_of(msgspec.defstruct("Counted", [], namespace={"__post_init__": count}, gc=False), data)
    return objects > most


def _require_utf_8(body: bytes | bytearray) -> None:
    if body.startswith(_UTF_16):
        raise Unreadable("is UTF-16; send UTF-8")


@lru_cache(maxsize=256)
def _decoder(wanted: WantedColumns) -> Decoder:
    """The decoder for these columns; making one takes longer than reading a small batch."""
    return Decoder(wanted)


def media_type_of(content_type: str) -> tuple[str, str | None]:
    """The media type that a Content-Type names, and its charset.

    Example:
        >>> media_type_of('Application/JSON; charset="UTF-8"'), media_type_of("application/x-ndjson")
        (('application/json', 'UTF-8'), ('application/x-ndjson', None))
    """
    if content_type in _READERS:
        return content_type, None
    header = Header()
    header["Content-Type"] = content_type
    try:
        charset = header.get_param("charset")
    except Exception:  # the library stumbles over some that are malformed
        return "", None
    return header.get_content_type(), None if charset is None else str(charset)


def _codec(encoding: str | None) -> str | None:
    """The codec that a Content-Encoding names; one codec, once: a body packed twice is packed to hide its size."""
    named = (encoding or "").strip().lower()
    if named not in _CODECS:
        raise IngestError(415, "the Content-Encoding is not known; use gzip, zstd or none.")
    return _CODECS[named]


def _unpack(body: bytearray, codec: str, unpacked: bytearray, limit: int) -> None:
    """Unpack a body into a buffer, up to a limit; several members or frames in a row count as one."""
    most = limit + 1
    with (
        instead_of(
            (OSError, pa.ArrowException),
            Unreadable(f"is not valid {codec}: it is damaged, cut short, or not packed at all"),
        ),
        pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(body)), codec) as stream,
    ):
        while len(unpacked) < most:
            at = len(unpacked)
            unpacked.extend(bytes(min(_STEP, most - at)))
            # Straight into place, so that there is no other copy to overwrite.
            with memoryview(unpacked) as whole, whole[at:] as room:
                size = stream.readinto(room)
            del unpacked[at + size :]
            if not size:
                break
    if len(unpacked) > limit:
        raise too_large(f"{limit:,} bytes once unpacked")


def wipe(buffer: bytearray) -> None:
    """Overwrite a buffer with zeros, and then empty it unless something still points into it.

    Example:
        >>> body = bytearray(b"secret")
        >>> wipe(body)
        >>> body
        bytearray(b'')
    """
    with memoryview(buffer) as whole:  # in place, and without letting other threads in, as a call of C would
        for at in range(0, len(whole), len(_ZEROS)):
            with whole[at : at + len(_ZEROS)] as part:
                part[:] = _ZEROS[: len(part)]
    with suppress(BufferError):  # an Arrow table on it may still be alive; it reads zeros now
        buffer.clear()
