"""The binary form of a state: magic, version, checksum, then typed MessagePack; never a pickle."""

from __future__ import annotations

import hashlib
import math
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError, instead_of

MAGIC = b"FOLDAWAY"
VERSION = 1
HEADER = len(MAGIC) + 2 + 32
"""Bytes before the body: magic, version, checksum."""

T = TypeVar("T")


class Array(msgspec.Struct, frozen=True, array_like=True):
    """A float64 array as shape and little-endian bytes."""

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Array:
        """Pack an array."""
        return cls(values.shape, np.ascontiguousarray(values, dtype="<f8").tobytes())

    def read(self, *shape: int) -> NDArray[np.float64]:
        """Unpack, insisting on the shape and on finite numbers."""
        if self.shape != shape or len(self.data) != 8 * int(np.prod(shape)):
            raise StateError("the state does not fit its plan: an array has the wrong shape.")
        values = np.frombuffer(self.data, dtype="<f8").reshape(shape).astype(np.float64)
        if not np.isfinite(values).all():
            raise StateError("the state is damaged: it holds numbers that are not finite.")
        return values


class WholeNumbers(msgspec.Struct, frozen=True, array_like=True):
    """An array of counts as shape and little-endian bytes: as few for each as their sum needs.

    So the size of what is kept depends on how many were counted, and never on where.
    """

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, counts: NDArray[np.float64]) -> WholeNumbers:
        """Pack an array of whole numbers from 0."""
        width = next(width for width in (1, 2, 4, 8) if counts.sum() < 256**width)
        return cls(counts.shape, np.ascontiguousarray(counts, dtype=f"<u{width}").tobytes())

    def read(self, *shape: int) -> NDArray[np.float64]:
        """Unpack, insisting on the shape."""
        width, left = divmod(len(self.data), math.prod(shape))
        if self.shape != shape or left or width not in (1, 2, 4, 8):
            raise StateError("the state does not fit its plan: an array has the wrong shape.")
        return np.frombuffer(self.data, dtype=f"<u{width}").reshape(shape).astype(np.float64)


def pack(body: msgspec.Struct, magic: bytes = MAGIC) -> bytes:
    """The bytes of a state, or of another thing that begins with a magic of its own."""
    encoded = msgspec.msgpack.encode(body)
    return b"".join((magic, VERSION.to_bytes(2, "little"), hashlib.sha256(encoded).digest(), encoded))


def unpack(data: bytes, kind: type[T], magic: bytes = MAGIC) -> T:
    """The state in the bytes, or a StateError that says what is wrong with them."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise StateError("a state is bytes, as `dumps` gives them.")
    data = bytes(data)
    if not data.startswith(magic):
        raise StateError("this is not a foldaway state.")
    if len(data) < HEADER:
        raise StateError("the state is truncated: take it from its source again.")
    version = int.from_bytes(data[8:10], "little")
    if version != VERSION:
        raise StateError(f"the state has format {version}; this foldaway reads format {VERSION}.")
    body = data[HEADER:]
    if hashlib.sha256(body).digest() != data[10:HEADER]:
        raise StateError("the state is damaged or truncated: its checksum does not match.")
    with instead_of((ValueError, RecursionError), StateError("the state is damaged: it cannot be decoded.")):
        return msgspec.msgpack.decode(body, type=kind)


def decode_part(part: Any, kind: type[T]) -> T:
    """A part of a state as its type."""
    with instead_of(ValueError, StateError("the state does not fit its plan: a tally has the wrong form.")):
        return msgspec.convert(part, kind)
