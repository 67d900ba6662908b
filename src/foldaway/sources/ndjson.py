"""Newline-delimited JSON: one object per line.

Read by msgspec, not by `pyarrow.json`: that one ends the process on a first line of ``null`` (seen with version
26), takes two objects on one line for two records, and cannot go on after a malformed line.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from foldaway.sources.batch import Batch, Unreadable, Wanted, slices
from foldaway.sources.lines import BLOCK, blocks
from foldaway.sources.numbers import as_numbers
from foldaway.sources.streams import Stream

ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
"""The beginning of what is JSON, but not one object per line."""

_NULL = msgspec.Raw(b"null")
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)


def batches(stream: Stream, wanted: Wanted, *, block: int = BLOCK) -> Iterator[Batch]:
    """The wanted members of every line's object; where a line has no such member, null.

    There is no header, so every wanted column is in every batch, and one that no line has is all null.

    Numeric columns come as float64 (true and false as 1 and 0), or as string in blocks where some value is not a
    number: the numbers as they are written, everything else as its JSON text. Text columns come as string,
    numbers in them with all their digits. Lines that are not one JSON object, or not UTF-8 in a wanted member,
    count as ragged.
    """
    if ARRAY.match(stream.peek(4096)):
        raise Unreadable("is one JSON array; write one object per line, for instance with `jq -c '.[]'`")
    decode = _Decoder(wanted)
    yield decode(b"")  # so that a file without lines gives a batch as well
    for data in blocks(stream, lambda data: data.rfind(b"\n") + 1, block):
        yield from slices(decode(data))


class _Decoder:
    """Turns a block of lines into a batch: all at once if the lines are as expected, else line by line."""

    def __init__(self, wanted: Wanted) -> None:
        if any(character < " " or character in '"\\' for name in wanted.names for character in name):
            raise Unreadable("is asked for a column with a quote or a backslash in its name; rename it")
        self._columns = {f"f{i}": name for i, name in enumerate(wanted.names)}
        self._text = {field for field, name in self._columns.items() if name in wanted.text}
        kinds = {field: str | int if field in self._text else float | bool for field in self._columns}
        self._expected = self._reader([(field, kind | None, None) for field, kind in kinds.items()])
        self._anything = self._reader([(field, msgspec.Raw, _NULL) for field in self._columns])

    def _reader(self, fields: list[tuple[str, Any, Any]]) -> Callable[[bytes], Any]:
        line = msgspec.defstruct("Line", fields, rename=self._columns, gc=False)
        return msgspec.json.Decoder(line).decode

    def __call__(self, data: bytes) -> Batch:
        lines = [line for line in data.split(b"\n") if line and not line.isspace()]
        columns, ragged = self._at_once(lines), 0
        if columns is None:
            rows = [row for line in lines if (row := self._row(line)) is not None]
            columns = [self._array(field, [row[field] for row in rows]) for field in self._columns]
            ragged = len(lines) - len(rows)
        return Batch(pa.RecordBatch.from_arrays(columns, names=list(self._columns.values())), ragged)

    def _at_once(self, lines: list[bytes]) -> list[pa.Array] | None:
        try:
            rows = [self._expected(line) for line in lines]
        except _MALFORMED:
            return None
        columns = []
        for field in self._columns:
            cells = [getattr(row, field) for row in rows]
            if field in self._text:
                columns.append(pa.array([cell if cell is None else str(cell) for cell in cells], pa.string()))
            else:
                # NumPy takes numbers and booleans together, and NaN can stand for null: JSON has no NaN.
                columns.append(pa.array(np.array(cells, dtype=np.float64), from_pandas=True))
        return columns

    def _row(self, line: bytes) -> dict[str, str | None] | None:
        """The line's members as text; None if it is not a JSON object."""
        try:
            row = self._anything(line)
            members = {field: bytes(getattr(row, field)) for field in self._columns}
            return {field: _as_text(member, field in self._text) for field, member in members.items()}
        except _MALFORMED:
            return None

    def _array(self, field: str, cells: list[str | None]) -> pa.Array:
        array = pa.array(cells, pa.string())
        numbers = None if field in self._text else as_numbers(array)
        return array if numbers is None else numbers


def _as_text(member: bytes, text: bool) -> str | None:
    """A member as text; a string where a number should be keeps its quotes, which show that it is none."""
    if text and member.startswith(b'"'):
        return msgspec.json.decode(member, type=str)
    # True and false count as numbers. In text, minus zero is zero, as it is for the faster way above.
    same = {b"null": None, b"-0": "0"} if text else {b"null": None, b"true": "1", b"false": "0"}
    return same[member] if member in same else member.decode()
