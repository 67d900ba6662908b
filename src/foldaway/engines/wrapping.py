"""What workers pass on, encrypted under a key of one run.

Engines write what passes between workers to disks of their own: shuffle files, results too large for memory. The state
of a partition with few records says much about them. So nothing leaves a worker in the clear, and the key to it, new in
every run, is only ever in memory.
"""

from __future__ import annotations

import secrets

from foldaway.errors import SourceError, StateError

LENGTH = 32
_NONCE = 12


class Wrapping:
    """Wraps bytes with AES-256-GCM, each under a nonce of its own.

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
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise SourceError(
                "engines need the package cryptography: install foldaway[spark] or foldaway[dask]."
            ) from None
        self.key = secrets.token_bytes(LENGTH) if key is None else key
        self._cipher = AESGCM(self.key)

    def __repr__(self) -> str:
        return "Wrapping: held"

    def wrap(self, plain: bytes) -> bytes:
        """Encrypt."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, plain, None)

    def unwrap(self, parcel: bytes) -> bytes:
        """Decrypt what `wrap` gave, in whatever process."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(parcel[:_NONCE], parcel[_NONCE:], None)
        except InvalidTag:
            pass
        raise StateError("a worker's tallies were damaged on their way; run the fold again.")
