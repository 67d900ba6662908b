"""What a worker process is told and what it answers, and how that goes through a pipe: length, then MessagePack."""

from __future__ import annotations

from typing import IO, TypeVar

import msgspec

from foldaway.sources.runs.share_folding import Count, ReadOptions
from foldaway.sources.runs.shares import Piece

T = TypeVar("T")

_LENGTH = 8


class Setup(msgspec.Struct, frozen=True):
    """The first thing that a worker is told. The bootstrap's key goes through memory only.

    Attributes:
        plan: The plan in canonical form.
        key: The bootstrap's key, if the plan has one.
        options: How the files are read.
    """

    plan: str
    key: bytes | None
    options: ReadOptions


class ShareToFold(msgspec.Struct, frozen=True):
    """A share to fold."""

    share: list[Piece]


class BytesFolded(msgspec.Struct, frozen=True, tag=True):
    """So many more bytes of a file, by its name, are folded."""

    name: bytes
    more: int


class Folded(msgspec.Struct, frozen=True, tag=True):
    """The state of the share's records, and what became of the records of each piece."""

    state: bytes
    counts: list[Count]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A share that was refused: the name of the error's type in `foldaway.errors`, and its message."""

    kind: str
    message: str


Answer = BytesFolded | Folded | Failed


def send(pipe: IO[bytes], message: msgspec.Struct) -> None:
    """Write a message."""
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH, "little") + data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[T]) -> T | None:
    """Read a message; None where the other side is gone, even in the middle of a message."""
    head = pipe.read(_LENGTH)
    length = int.from_bytes(head, "little")
    data = pipe.read(length) if len(head) == _LENGTH else b""
    return msgspec.msgpack.decode(data, type=kind) if data and len(data) == length else None
