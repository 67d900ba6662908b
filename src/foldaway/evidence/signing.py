"""Signatures (Ed25519, RFC 8032), and the canonical form of what is signed."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any


def canonical(value: Any, indent: int | None = None) -> bytes:
    """JSON in the one form that is hashed and signed: keys sorted, UTF-8, no blanks; or a line for each value.

    Example:
        >>> canonical({"b": [1, 2], "a": "é"}).decode()
        '{"a":"é","b":[1,2]}'
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent)
    return text.encode()


def digest(data: bytes | str) -> str:
    """SHA-256, in hexadecimal digits."""
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()


class Signer:
    """Whoever writes a ledger.

    Args:
        seed: The secret key: 32 bytes.

    Example:
        >>> signer = Signer(bytes(32))
        >>> signature = signer.sign(b"entry")
        >>> is_signed(signer.key, b"entry", signature), is_signed(signer.key, b"other", signature)
        (True, False)
    """

    def __init__(self, seed: bytes) -> None:
        # Not for those who sign nothing.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.key = self._key.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> str:
        """The signature, in hexadecimal digits."""
        return self._key.sign(data).hex()


def is_signed(key: str, data: bytes, signature: str) -> bool:
    """Whether the signature is that of the data, under a public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(_bytes(key)).verify(_bytes(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _bytes(digits: str) -> bytes:
    """Bytes of lower-case digits alone: each key and signature has one way to be written."""
    data = bytes.fromhex(digits)
    if data.hex() != digits:
        raise ValueError
    return data
