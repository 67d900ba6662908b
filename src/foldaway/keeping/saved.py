"""A saved file: a state, and with it, in the same atomic write, how far its sources have been read.

Whoever folds a source that can be read again must store the tallies and the place reached in one step: stored one after
the other, a crash between the two would lose records or count them twice. A saved file is either a bare state, as
``Trial.dumps`` gives it, or a state with positions:

    magic (8 bytes) | version (2) | SHA-256 of the body (32) | body: MessagePack of {state, positions}

``Trial.load`` reads both. What positions are is the source's own affair; here they are bytes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from foldaway.errors import StateError
from foldaway.keeping.disk import replace_file
from foldaway.keeping.state import pack, unpack

MAGIC = b"FOLDAWA+"


class Saved(msgspec.Struct, frozen=True):
    """What a saved file holds.

    Attributes:
        state: The state, as ``Trial.dumps`` gives it.
        positions: How far the sources of the state have been read, in a form that the source knows; empty if nobody
            keeps them.
    """

    state: bytes
    positions: bytes = b""

    def dumps(self) -> bytes:
        """The bytes of the file: without positions those of the state.

        Example:
            >>> Saved(b"state").dumps()
            b'state'
            >>> loads(Saved(b"state", b"day 17").dumps()).positions
            b'day 17'
        """
        return pack(self, MAGIC) if self.positions else self.state

    def save(self, path: Path) -> None:
        """Write the file, as `replace_file` does."""
        replace_file(path, self.dumps())


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
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise StateError(f"cannot read the state {path}: {error.strerror}.") from None
    try:
        return loads(data)
    except StateError as error:
        told = str(error)
    raise StateError(f"{path}: {told}")
