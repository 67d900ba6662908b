"""HPKE (RFC 9180) in base mode, written out, with an ephemeral key that is given: so that vectors are always the same.

DHKEM(P-256, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, one message, no associated data.
"""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEM = b"KEM\x00\x10"
_SUITE = b"HPKE\x00\x10\x00\x01\x00\x01"


def private_key(scalar: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key of these 32 bytes, a number below the curve's order."""
    return ec.derive_private_key(int.from_bytes(scalar, "big"), ec.SECP256R1())


def public_bytes(private: ec.EllipticCurvePrivateKey) -> bytes:
    """Its public half, a point that is not compressed."""
    return private.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def sealed(plain: bytes, public: bytes, info: bytes, ephemeral: bytes) -> bytes:
    """What a device sends: the encapsulated key, then the ciphertext."""
    own = private_key(ephemeral)
    enc = public_bytes(own)
    other = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
    first = _extract(_KEM, b"", b"eae_prk", own.exchange(ec.ECDH(), other))
    shared = _expand(_KEM, first, b"shared_secret", enc + public, 32)
    context = b"\0" + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", info)
    secret = _extract(_SUITE, shared, b"secret", b"")
    key, nonce = _expand(_SUITE, secret, b"key", context, 16), _expand(_SUITE, secret, b"base_nonce", context, 12)
    return enc + AESGCM(key).encrypt(nonce, plain, b"")


def _extract(suite: bytes, salt: bytes, label: bytes, data: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + data, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, data: bytes, length: int) -> bytes:
    return hmac.digest(key, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + data + b"\x01", "sha256")[:length]
