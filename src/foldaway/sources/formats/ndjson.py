"""Newline-delimited JSON: one object per line.

Plain objects are read by a kernel of our own, all others by msgspec. `pyarrow.json` is no faster than that one, ends
the process on a first line of ``null`` (seen with version 26), takes two objects on one line for two records, and
cannot go on after a malformed line.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foldaway.numerics.kernels.compiling import run
from foldaway.numerics.kernels.json_lines import ABSENT, FALSE, NOT_PLAIN, TRUE, gather, most_objects, take_apart, width
from foldaway.sources.formats.chunk import Chunk, Unreadable, WantedColumns, as_numbers, slices, too_large
from foldaway.sources.formats.lines import BLOCK, LineNumbers, blocks
from foldaway.sources.formats.streams import Peekable, Stream

ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
"""The beginning of what is JSON, but not one object per line."""

MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises on text that is not the JSON it was told to expect."""

_NULL = msgspec.Raw(b"null")


def chunks(stream: Stream | Peekable, wanted: WantedColumns, *, block: int = BLOCK) -> Iterator[Chunk]:
    """The wanted members of every line's object; where a line has no such member, null.

    There is no header, so every wanted column is in every chunk, and one that no line has is all null.

    Numeric columns come as float64 (true and false as 1 and 0), or as string in blocks where some value is not a
    number: the numbers as they are written, everything else as its JSON text. Text columns come as string,
    numbers in them with all their digits. Columns that may be either come as float64 in blocks that have nothing but
    numbers there, else as text. Lines that are not one JSON object, or not UTF-8 in a wanted member, count as ragged.
    """
    if ARRAY.match(stream.peek(4096)):
        raise Unreadable("is one JSON array; write one object per line, for instance with `jq -c '.[]'`")
    decode = Decoder(wanted)
    yield decode(b"")  # so that a file without lines gives a chunk as well
    numbers = LineNumbers()
    for data in blocks(stream, lambda data: data.rfind(b"\n") + 1, block):
        chunk = decode(data)
        first = numbers.of(data, chunk.records.num_rows + chunk.ragged)
        if not chunk.ragged:
            chunk = replace(chunk, line=first)
        elif chunk.ragged_line is not None:
            chunk = replace(chunk, ragged_line=None if first is None else first + chunk.ragged_line)
        yield from slices(chunk)


class Decoder:
    """Turns objects in JSON into a chunk: all at once if they are plain or as expected, else one by one.

    Attributes:
        expected: The type of an object in which every wanted member is what it should be.
        anything: The type of any object, its wanted members left as they are written.
    """

    def __init__(self, wanted: WantedColumns) -> None:
        if any(character < " " or character in '"\\' for name in wanted.names for character in name):
            raise Unreadable("is asked for a column with a quote or a backslash in its name; rename it")
        self._columns = {f"f{i}": name for i, name in enumerate(wanted.names)}
        self._text = {field for field, name in self._columns.items() if name in wanted.text}
        self._either = {field for field, name in self._columns.items() if name in wanted.either} - self._text
        names = [name.encode() for name in wanted.names]
        self._names = np.frombuffer(b"".join(names) + bytes(8), dtype=np.uint8)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int32)
        self._numeric = np.array([field not in self._text for field in self._columns], dtype=bool)
        self._neither = np.array([field in self._either for field in self._columns], dtype=bool)
        kinds = {field: str | int if field in self._text else float | bool for field in self._columns}
        kinds |= dict.fromkeys(self._either, str | float | bool)
        self.expected = self._object([(field, kind | None, None) for field, kind in kinds.items()])
        self.anything = self._object([(field, msgspec.Raw, _NULL) for field in self._columns])
        self._read_expected = msgspec.json.Decoder(self.expected).decode
        self.read_array = msgspec.json.Decoder(list[self.expected]).decode  # type: ignore[name-defined]
        self._read_anything = msgspec.json.Decoder(self.anything).decode

    def _object(self, fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
        return msgspec.defstruct("Object", fields, rename=self._columns, gc=False)

    def __call__(self, data: bytes | memoryview, most_slow: int | None = None) -> Chunk:
        """A chunk from a block of lines; its `ragged_line` counts from 0 within the block.

        Raises:
            TooLarge: More of them than this would have to be read one by one.
        """
        if data[-1:] != b"\n":
            data = bytes(data) + b"\n"
        if (columns := self._plain_columns(np.frombuffer(data, dtype=np.uint8))) is not None:
            return self._chunk(columns, 0)
        lines = _lines(data)
        try:
            return self.chunk([self._read_expected(line) for line in lines])
        except MALFORMED:
            pass
        if most_slow is not None and len(lines) > most_slow:
            raise too_large(f"{most_slow:,} lines, some of which have to be read the slow way, one by one")
        read = [self._row(line) for line in lines]
        rows = [row for row in read if row is not None]
        first = read.index(None) if len(rows) < len(read) else None
        return replace(self._chunk_of_texts(rows, len(lines) - len(rows)), ragged_line=first, slow=len(lines))

    def read_lines(self, data: bytearray) -> list[Any]:
        """The objects of lines in which all is as expected; each on a line of its own, which a parser would not ask."""
        return [self._read_expected(line) for line in _lines(data)]

    def _plain_columns(self, text: NDArray[np.uint8]) -> list[pa.Array] | None:
        """The columns of lines that are all plain objects, or None."""
        if not self._columns:
            return None
        begin, end = np.empty((2, len(self._columns), run(most_objects, text)), dtype=np.int32)
        numeric = self._numeric
        rows = run(take_apart, text, self._names, self._ends, numeric, begin, end)
        if rows == NOT_PLAIN and self._either:
            numeric = numeric & ~self._neither
            rows = run(take_apart, text, self._names, self._ends, numeric, begin, end)
        if rows == NOT_PLAIN or np.isin(begin[self._neither, : max(rows, 0)], (TRUE, FALSE)).any():
            return None
        columns = [_gathered(text, first[:rows], last[:rows]) for first, last in zip(begin, end, strict=True)]
        try:
            for column in columns:
                column.validate(full=True)  # that it is UTF-8
            return [
                column.cast(pa.float64()) if wanted else self._array(field, column)
                for field, column, wanted in zip(self._columns, columns, numeric, strict=True)
            ]
        except pa.ArrowInvalid:
            return None

    def chunk(self, rows: list[Any]) -> Chunk:
        """A chunk from objects of the expected type."""
        columns = []
        for field in self._columns:
            cells = [getattr(row, field) for row in rows]
            if field in self._text or (field in self._either and {bool, str} & set(map(type, cells))):
                columns.append(pa.array([_written(cell) for cell in cells], pa.string()))
            else:
                # NumPy takes numbers and booleans together, and NaN can stand for null: JSON has no NaN.
                columns.append(pa.array(np.array(cells, dtype=np.float64), from_pandas=True))
        return self._chunk(columns, 0)

    def chunk_of_anything(self, objects: list[Any]) -> Chunk:
        """A chunk from objects of the type that takes anything."""
        rows = [row for each in objects if (row := self._texts(each)) is not None]
        return self._chunk_of_texts(rows, len(objects) - len(rows))

    def _row(self, line: bytes) -> dict[str, str | None] | None:
        """The line's members as text; None if it is not a JSON object."""
        try:
            return self._texts(self._read_anything(line))
        except MALFORMED:
            return None

    def _texts(self, row: Any) -> dict[str, str | None] | None:
        """The object's members as text; None if one of them is not UTF-8, or an object or a list in place of a name."""
        try:
            members = {field: bytes(getattr(row, field)) for field in self._columns}
            text = self._text | self._either
            return {field: _as_text(member, field in text) for field, member in members.items()}
        except MALFORMED:
            return None

    def _chunk_of_texts(self, rows: list[dict[str, str | None]], ragged: int) -> Chunk:
        return self._chunk([self._array(field, [row[field] for row in rows]) for field in self._columns], ragged)

    def _chunk(self, columns: list[pa.Array], ragged: int) -> Chunk:
        return Chunk(pa.RecordBatch.from_arrays(columns, names=list(self._columns.values())), ragged)

    def _array(self, field: str, cells: list[str | None] | pa.Array) -> pa.Array:
        array = cells if isinstance(cells, pa.Array) else pa.array(cells, pa.string())
        numbers = None if field in self._text else as_numbers(array)
        return array if numbers is None else numbers


def _gathered(text: NDArray[np.uint8], begin: NDArray[np.int32], end: NDArray[np.int32]) -> pa.Array:
    """The pieces of a text as an array of strings."""
    offsets = np.empty(len(begin) + 1, dtype=np.int32)
    pieces = np.empty(run(width, begin, end), dtype=np.uint8)
    run(gather, text, begin, end, offsets, pieces)
    absent = begin == ABSENT
    mask = pa.array(~absent).buffers()[1] if absent.any() else None
    buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(pieces)]
    return pa.Array.from_buffers(pa.string(), len(begin), buffers)


def _written(cell: str | float | None) -> str | None:
    """A cell as text."""
    return str(cell).lower() if isinstance(cell, bool) else None if cell is None else str(cell)


def _as_text(member: bytes, text: bool) -> str | None:
    """A member as text; a string where a number should be keeps its quotes, which show that it is none.

    Raises:
        ValueError: An object or a list, where a name belongs.
    """
    if text and member.startswith(b'"'):
        return msgspec.json.decode(member, type=str)
    if text and member.startswith((b"{", b"[")):
        raise ValueError
    # True and false count as numbers. In text, minus zero is zero, as it is for the faster way above.
    same = {b"null": None, b"-0": "0"} if text else {b"null": None, b"true": "1", b"false": "0"}
    return same[member] if member in same else member.decode()


def _lines(data: bytes | bytearray | memoryview) -> list[bytes]:
    """The lines that hold anything."""
    return [line for line in bytes(data).split(b"\n") if line and not line.isspace()]
