"""Bytes sealed with AES-256-GCM: nobody without the key reads them, alters them or puts them in another place.

Each seal has a random nonce of 96 bits, which is safe for 2^32 seals under one key (NIST SP 800-38D, 8.3): one a second
for a century.
"""

from __future__ import annotations

import secrets

from foldaway.errors import instead_of

KEY_LENGTH = 32
NONCE = 12
"""How many bytes a seal puts before what it seals; a tag comes after."""


class BrokenSeal(Exception):
    """Bytes that were not sealed under this key for this place, or were altered since."""


def seal(key: bytes, plain: bytes, place: bytes = b"") -> bytes:
    """Seal bytes for one place: anywhere else they do not open.

    Example:
        >>> sealed = seal(bytes(32), b"tallies", b"here")
        >>> b"tallies" in sealed, unseal(bytes(32), sealed, b"here")
        (False, b'tallies')
        >>> unseal(bytes(32), sealed, b"there")
        Traceback (most recent call last):
        foldaway.keeping.sealing.BrokenSeal
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # not for those who seal nothing

    nonce = secrets.token_bytes(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, place)


def unseal(key: bytes, sealed: bytes, place: bytes = b"") -> bytes:
    """Open what `seal` gave.

    Raises:
        BrokenSeal: It was sealed under another key or for another place, or was altered.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    with instead_of((InvalidTag, ValueError), BrokenSeal()):  # ValueError: too short to be one
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], place)
