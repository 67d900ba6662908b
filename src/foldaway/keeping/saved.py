"""A saved file: a state, and with it, in the same atomic write, how far its sources have been read.

Whoever folds a source that can be read again must store the tallies and the place reached in one step: stored one after
the other, a crash between the two would lose records or count them twice. A saved file is either a bare state, as
``Trial.dumps`` gives it, or a state with positions:

    magic (8 bytes) | version (2) | SHA-256 of the body (32) | body: MessagePack of {state, positions}

Positions carry the kind of source that they are of: files or a stream.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from foldaway.errors import StateError, instead_of
from foldaway.keeping.disk import replace_file
from foldaway.keeping.ledger import Pages
from foldaway.keeping.state import MAGIC as BARE
from foldaway.keeping.state import pack, unpack

MAGIC = b"FOLDAWA+"

Place = tuple[int, ...]
"""Where in a part of a stream a message stands. Places of one part are ordered as the messages are."""


class StreamPositions(msgspec.Struct, frozen=True, tag="stream"):
    """How far a stream was read.

    Attributes:
        stream: The stream that the places are in.
        identity: What tells it from another of the same name.
        places: The place of the last message in the tallies, for each part of the stream.
        skipped: Faulty messages that were passed over.
        missed: Messages that were gone from the broker before they were read.
        left_out: Records short of a cohort that were left out at the close.
        closed: Whether the trial has ended.
    """

    stream: str
    identity: str = ""
    places: dict[str, Place] = {}
    skipped: int = 0
    missed: int = 0
    left_out: int = 0
    closed: bool = False


Positions = Pages | StreamPositions
P = TypeVar("P", Pages, StreamPositions)

_MADE_BY = {Pages: "a run over files", StreamPositions: "the consumer of a stream", type(None): "`Trial.save`"}


class Saved(msgspec.Struct, frozen=True):
    """What a saved file holds.

    Attributes:
        state: The state, as ``Trial.dumps`` gives it.
        positions: How far the sources of the state have been read; none if nobody keeps that.
    """

    state: bytes
    positions: Positions | None = None

    def dumps(self) -> bytes:
        """The bytes of the file: without positions those of the state.

        Example:
            >>> Saved(b"state").dumps()
            b'state'
            >>> loads(Saved(b"state", StreamPositions("nats ORDERS", places={"": (17,)})).dumps()).positions.places
            {'': (17,)}
        """
        return self.state if self.positions is None else pack(self, MAGIC)

    def save(self, path: Path, *, mode: int = 0o666) -> None:
        """Write the file, as `replace_file` does."""
        replace_file(path, self.dumps(), mode=mode)


def of_kind(positions: Positions | None, kind: type[P]) -> P:
    """The positions of a state, which must be of this kind of source.

    Raises:
        StateError: They are of another, or there are none.
    """
    if isinstance(positions, kind):
        return positions
    raise StateError(
        f"the state was saved by {_MADE_BY[type(positions)]}, not by {_MADE_BY[kind]}; go on from it there, or name "
        "another place."
    )


def is_saved(head: bytes) -> bool:
    """Whether a file that begins like this is a saved one."""
    return head.startswith((BARE, MAGIC))


def loads(data: bytes) -> Saved:
    """What the bytes of a saved file hold; whether the state is one is for ``Trial.loads`` to say.

    Raises:
        StateError: The bytes are damaged or truncated.
    """
    return unpack(data, Saved, MAGIC) if data.startswith(MAGIC) else Saved(data)


def load(path: str | Path) -> Saved:
    """What a saved file holds.

    Raises:
        StateError: The file cannot be read, or is damaged.
    """
    with instead_of(OSError, lambda error: StateError(f"cannot read the state {path}: {error.strerror}.")):
        data = Path(path).read_bytes()
    with naming(path):
        return loads(data)


def naming(path: str | Path) -> instead_of:
    """Put a file's name before whatever is wrong with the state in it."""
    return instead_of(StateError, lambda error: StateError(f"{path}: {error}"))
