"""What workers pass on, encrypted under a key of one run.

Engines write what passes between workers to disks of their own: shuffle files, results too large for memory. The state
of a partition with few records says much about them. So nothing leaves a worker in the clear, and the key to it, new in
every run, is only ever in memory.
"""

from __future__ import annotations

import secrets
from importlib.util import find_spec

from foldaway.errors import SourceError, StateError, instead_of
from foldaway.keeping.sealing import KEY_LENGTH, BrokenSeal, seal, unseal


class Wrapping:
    """Seals what passes between workers.

    Args:
        key: 32 bytes; new ones if left out.

    Example:
        >>> wrapping = Wrapping()
        >>> parcel = wrapping.wrap(b"tallies")
        >>> b"tallies" in parcel
        False
        >>> Wrapping(wrapping.key).unwrap(parcel)
        b'tallies'
    """

    def __init__(self, key: bytes | None = None) -> None:
        if find_spec("cryptography") is None:
            raise SourceError("engines need the package cryptography: install foldaway[spark] or foldaway[dask].")
        self.key = secrets.token_bytes(KEY_LENGTH) if key is None else key

    def __repr__(self) -> str:
        return "Wrapping: held"

    def wrap(self, plain: bytes) -> bytes:
        """Encrypt."""
        return seal(self.key, plain)

    def unwrap(self, parcel: bytes) -> bytes:
        """Decrypt what `wrap` gave, in whatever process."""
        with instead_of(BrokenSeal, StateError("a worker's tallies were damaged on their way; run the fold again.")):
            return unseal(self.key, parcel)
