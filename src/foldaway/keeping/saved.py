"""A saved file: a state, and with it, in the same atomic write, how far its sources have been read.

Whoever folds a source that can be read again must store the tallies and the place reached in one step: stored one after
the other, a crash between the two would lose records or count them twice. What is saved is a bare state, as
``Trial.dumps`` gives it, or a state with positions:

    magic (8 bytes) | version (2) | SHA-256 of the body (32) | body: MessagePack of {state, positions, final, ledger}

Positions carry the kind of source that they are of: files or a stream. On the disk all of it is encrypted under a key
that lies elsewhere, for its owner alone:

    magic (8 bytes) | design (16) | AES-256-GCM of what is saved

Once the trial has ended, its final effects take the place of the state. They are for others, and so in the clear. The
ledger of what happened goes with both, so that it never says other than what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from foldaway.errors import StateError, instead_of
from foldaway.evidence.ledger import Ledger
from foldaway.keeping.disk import read_file, replace_file
from foldaway.keeping.folded_files import FilePositions
from foldaway.keeping.listed_places import note_place, places_of
from foldaway.keeping.sealing import BrokenSeal, seal, unseal
from foldaway.keeping.state import MAGIC as BARE
from foldaway.keeping.state import pack, unpack
from foldaway.keeping.user_keys import FileKey, user_key

MAGIC = b"FOLDAWA+"
ENCRYPTED = b"FOLDAWA*"
_DESIGN = 16  # bytes of a design's fingerprint

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
    """

    stream: str
    identity: str = ""
    places: dict[str, Place] = {}
    skipped: int = 0
    missed: int = 0


Positions = FilePositions | StreamPositions
P = TypeVar("P", bound=Positions)

_MADE_BY = {FilePositions: "a run over files", StreamPositions: "the consumer of a stream", type(None): "`Trial.save`"}


class Final(msgspec.Struct, frozen=True):
    """What is left of a trial that has ended.

    Attributes:
        plan: Its plan, in canonical form.
        effects: Its effects as JSON, rounded for others; none if too few stood behind them.
        key_mark: The mark of the user's own key, if that was the trial's: it must be gone.
    """

    plan: str
    effects: str | None
    key_mark: bytes = b""


class Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a saved file holds.

    Attributes:
        state: The state, as ``Trial.dumps`` gives it; empty once the trial has ended.
        positions: How far the sources of the state have been read; none if nobody keeps that.
        final: What is left of the trial, once it has ended.
        ledger: What happened in it.
    """

    state: bytes
    positions: Positions | None = None
    final: Final | None = None
    ledger: Ledger = Ledger()

    def dumps(self) -> bytes:
        """The bytes of the file: without anything else those of the state.

        Example:
            >>> Saved(b"state").dumps()
            b'state'
            >>> loads(Saved(b"state", StreamPositions("nats ORDERS", places={"": (17,)})).dumps()).positions.places
            {'': (17,)}
        """
        bare = self.positions is None and self.final is None and not self.ledger
        return self.state if bare else pack(self, MAGIC)

    def save(self, path: Path, key: FileKey | None) -> None:
        """Write the file, as `replace_file` does, for its owner alone.

        Args:
            path: Where to.
            key: What it is encrypted under; none for what is left of a trial that has ended.
        """
        data = self.dumps()
        if key is not None:
            header = ENCRYPTED + bytes.fromhex(key.design)[:_DESIGN]
            data = header + seal(key.for_files(), data, header)
        assert key is not None or not self.state, "tallies are never written in the clear"
        replace_file(path, data, private=True)
        if key is not None:
            note_place(key.mark, path)


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
    return head.startswith((BARE, MAGIC, ENCRYPTED))


def is_encrypted(path: Path) -> bool:
    """Whether a saved file is encrypted; if not, it is what is left of a trial that has ended, or a bare state."""
    return read_file(path, len(ENCRYPTED)) == ENCRYPTED


def loads(data: bytes) -> Saved:
    """What the bytes of a saved file hold; whether the state is one is for ``Trial.loads`` to say.

    Raises:
        StateError: The bytes are damaged or truncated.
    """
    return unpack(data, Saved, MAGIC) if data.startswith(MAGIC) else Saved(data)


def load(path: str | Path, key: bytes | None = None) -> Saved:
    """What a saved file holds.

    Args:
        path: The file.
        key: The trial's key; if left out, that of this machine's user.

    Raises:
        StateError: The file cannot be read, is damaged, or is encrypted under another key.
    """
    with instead_of(OSError, lambda error: StateError(f"cannot read the state {path}: {error.strerror}.")):
        data = read_file(Path(path))
    with naming(path):
        return loads(_decrypted(data, key) if data.startswith(ENCRYPTED) else data)


def _decrypted(data: bytes, key: bytes | None) -> bytes:
    header = data[: len(ENCRYPTED) + _DESIGN]
    design = header[len(ENCRYPTED) :].hex()
    secret = user_key(design, new=False) if key is None else key
    if secret is None:
        raise StateError(
            "the state is encrypted under a key that this machine's user does not have. Give the key that it was "
            "saved with: key=, or --key on the command line. If the trial has ended, the key is gone for good."
        )
    tried = "the one given" if key is not None else "this user's own: give that one with key=, or --key"
    with instead_of(BrokenSeal, StateError(f"the state is damaged, or is encrypted under another key than {tried}.")):
        return unseal(FileKey(design, secret).for_files(), data[len(header) :], header)


def others_under(key: FileKey, path: Path | None) -> list[Path]:
    """The other states that a key opens, as far as they are known: where this user saved them, and beside the path.

    Args:
        key: The key.
        path: The file that is not another one.
    """
    own = None if path is None else path.resolve()
    beside = [] if own is None else sorted(own.parent.iterdir())
    known = dict.fromkeys([*places_of(key.mark), *beside])
    return [place for place in known if place != own and _opens(key, place)]


def _opens(key: FileKey, place: Path) -> bool:
    header = ENCRYPTED + bytes.fromhex(key.design)[:_DESIGN]
    try:
        if not place.is_file() or read_file(place, len(header)) != header:
            return False
        unseal(key.for_files(), read_file(place)[len(header) :], header)
    except (OSError, BrokenSeal):
        return False
    return True


def naming(path: str | Path) -> instead_of:
    """Put a file's name before whatever is wrong with the state in it."""
    return instead_of(StateError, lambda error: StateError(f"{path}: {error}"))
