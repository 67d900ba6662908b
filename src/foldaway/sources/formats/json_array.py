"""One JSON array of objects: what is asked of a web interface rather than found in files."""

from typing import Any

import msgspec

from foldaway.sources.formats.chunk import Chunk, Unreadable
from foldaway.sources.formats.ndjson import MALFORMED, Decoder


class TooMany(Exception):
    """More objects than are wanted at a time."""


def batch(data: bytes | bytearray, decoder: Decoder, most: int) -> Chunk:
    """The wanted members of every object in the array, as `ndjson` gives those of every line.

    Args:
        data: The array, and nothing else.
        decoder: Knows the wanted members.
        most: As many objects are taken at most; no more memory than these need is used to find out.

    Raises:
        Unreadable: It is not one array of objects.
        TooMany: It is, but of more objects.

    Example:
        >>> from foldaway.sources.formats.chunk import WantedColumns
        >>> found = batch(b'[{"y": 1.5, "g": "a"}, {"g": "b"}]', Decoder(WantedColumns(("y",), ("g",))), 10)
        >>> found.records.to_pydict(), found.ragged
        ({'y': [1.5, None], 'g': ['a', 'b']}, 0)
    """
    if data.count(b"{") > most and _has_more(data, most):
        raise TooMany
    rows = _decoded(data, decoder.expected)
    if rows is not None:
        return decoder.batch(rows)
    rows = _decoded(data, decoder.anything)
    if rows is not None:
        return decoder.batch_of_anything(rows)
    raise Unreadable("is not one JSON array of objects")


def _decoded(data: bytes | bytearray, kind: Any) -> list[Any] | None:
    try:
        found: list[Any] = msgspec.json.decode(data, type=list[kind])
    except MALFORMED:
        return None
    return found


def _has_more(data: bytes | bytearray, most: int) -> bool:
    """Whether the array has more objects; those inside of others do not count, so braces cannot tell."""
    found = 0

    def count(_: Any) -> None:
        nonlocal found
        found += 1
        if found > most:
            raise ValueError("enough")

    _decoded(data, msgspec.defstruct("Counted", [], namespace={"__post_init__": count}, gc=False))
    return found > most
