"""What an Arrow stream claims to hold, added up from its messages' headers before Arrow acts on any of it.

A few bytes can claim a great deal: columns of nulls of any length, compressed buffers of any unpacked size (Arrow
takes the size for true and asks for that much memory at once), dictionaries that grow with every message. So the
headers, which are FlatBuffers, are walked first. Only what adds up to the limits goes on to Arrow, which checks
everything else.

References:
    https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
    https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from foldaway.errors import instead_of
from foldaway.sources.formats.chunk import Unreadable, too_large

_CONTINUES = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
_MOST_MESSAGES = 65_536  # each costs Arrow some kilobytes, however few records it holds
_LONGEST_HEADER = 4 * 2**20  # tens of thousands of columns; each costs Arrow more than its bytes here
_PAIR = struct.Struct("<qq")


class Damaged(Unreadable):
    """Not a whole Arrow stream."""

    def __init__(
        self,
        words: str = "is not one whole Arrow stream: it is damaged, cut short, or goes on after the end mark; close "
        "the writer before you send",
    ) -> None:
        super().__init__(words)


@dataclass
class Claims:
    """Records, and bytes of memory beyond those of the stream itself."""

    most_records: int
    most_bytes: int
    records: int = 0
    unpacked: int = 0
    dictionaries: dict[int, int] = field(default_factory=dict)

    def add_records(self, batch: Table) -> None:
        """Add a batch of records."""
        self.records += self._length(batch)
        if self.records > self.most_records:
            raise too_large(f"{self.most_records:,} records")
        self._unpack(_unpacked_size(batch))

    def add_dictionary(self, header: Table) -> None:
        """Add a dictionary; one that extends an earlier one makes Arrow copy that as well."""
        number, batch, extends = header.int64(0), header.table(1), header.flag(2)
        if batch is None:
            raise Damaged
        self._length(batch)
        size = _unpacked_size(batch) + len(batch.body)
        self.dictionaries[number] = size + (self.dictionaries.get(number, 0) if extends else 0)
        self._unpack(self.dictionaries[number])

    def _length(self, batch: Table) -> int:
        length = batch.int64(0)
        if length < 0:
            raise Damaged
        if length > self.most_records:
            raise too_large(f"{self.most_records:,} records")
        return length

    def _unpack(self, size: int) -> None:
        self.unpacked += size
        if self.unpacked > self.most_bytes:
            raise too_large(f"{self.most_bytes:,} bytes once unpacked")


def check_claims(stream: memoryview, most_records: int, most_bytes: int) -> None:
    """Check that a stream is whole and claims no more than the limits.

    Raises:
        Damaged: It is not a stream, does not end with the end mark, or has something after it.
        TooLarge: It claims more.

    Example:
        >>> import pyarrow as pa
        >>> sink = pa.BufferOutputStream()
        >>> with pa.ipc.new_stream(sink, pa.schema([("y", pa.null())])) as writer:
        ...     writer.write_table(pa.table({"y": pa.nulls(2 * 10**6)}))
        >>> check_claims(memoryview(sink.getvalue()), 10**6, 10**6)
        Traceback (most recent call last):
        foldaway.sources.formats.chunk.TooLarge: holds more than 1,000,000 records; send smaller batches
    """
    claims = Claims(most_records, most_bytes)
    with instead_of((struct.error, IndexError), Damaged()):
        for number, (kind, header) in enumerate(_messages(stream)):
            if (number == 0) != (kind == _SCHEMA):
                raise Damaged
            if number > _MOST_MESSAGES:
                raise too_large(f"{_MOST_MESSAGES:,} pieces: write more records into each")
            if kind == _RECORDS:
                claims.add_records(header)
            elif kind == _DICTIONARY:
                claims.add_dictionary(header)
            elif kind != _SCHEMA:
                raise Damaged


class Table(NamedTuple):
    """A FlatBuffers table, and the body of the message it is the header of."""

    metadata: memoryview
    at: int
    body: memoryview

    def _field(self, number: int) -> int | None:
        vtable = self.at - _number("<i", self.metadata, self.at)
        slot = 4 + 2 * number
        if slot + 2 > _number("<H", self.metadata, vtable):
            return None
        offset = _number("<H", self.metadata, vtable + slot)
        return self.at + offset if offset else None

    def int64(self, number: int) -> int:
        """A number, 0 if left out."""
        at = self._field(number)
        return 0 if at is None else _number("<q", self.metadata, at)

    def flag(self, number: int) -> int:
        """A small number or truth value, 0 if left out."""
        at = self._field(number)
        return 0 if at is None else _number("<B", self.metadata, at)

    def table(self, number: int) -> Table | None:
        """Another table, if it is there."""
        at = self._field(number)
        return None if at is None else self._replace(at=at + _number("<I", self.metadata, at))

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A vector of pairs of numbers, empty if left out."""
        at = self._field(number)
        if at is None:
            return iter(())
        at += _number("<I", self.metadata, at)
        vector = _cut(self.metadata, at + 4, _PAIR.size * _number("<I", self.metadata, at))
        return _PAIR.iter_unpack(vector)


def _messages(stream: memoryview) -> Iterator[tuple[int, Table]]:
    at = 0
    while True:
        mark, length = struct.unpack_from("<II", stream, at)
        at += 8
        if mark != _CONTINUES:
            raise Damaged
        if not length:
            break
        if length > _LONGEST_HEADER:
            raise too_large(f"{_LONGEST_HEADER:,} bytes of description: leave columns out")
        metadata = _cut(stream, at, length)
        at += length
        message = Table(metadata, _number("<I", metadata, 0), stream[:0])
        body = _cut(stream, at, message.int64(3))
        at += len(body)
        header = message._replace(body=body).table(2)
        if header is None:
            raise Damaged
        yield message.flag(1), header
    if at != len(stream):
        raise Damaged


def _unpacked_size(batch: Table) -> int:
    """How many bytes the compressed buffers of a batch say they unpack to; each begins with that number."""
    if batch.table(3) is None:
        return 0
    total = 0
    for offset, length in batch.pairs(2):
        if length:
            size = _number("<q", _cut(batch.body, offset, length), 0)
            if size < -1:
                raise Damaged
            total += max(size, 0)  # -1: this one is not compressed
    return total


def _cut(data: memoryview, at: int, length: int) -> memoryview:
    if not (0 <= at <= len(data) and 0 <= length <= len(data) - at):
        raise Damaged
    return data[at : at + length]


def _number(kind: str, data: memoryview, at: int) -> int:
    if at < 0:  # Python would count from the end
        raise Damaged
    number: int = struct.unpack_from(kind, data, at)[0]
    return number
