"""What is sealed for a server, and how two servers know each other: by key pairs, whose public halves are in the plan.

Devices seal with HPKE (RFC 9180), DHKEM(P-256, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM. What a share is of goes into
`info`, so a share opens only for the trial, the server, the report number, the arm and the group that it was made for.
Requests between the two servers are authenticated by HMAC-SHA256 under a key that both derive from the static
Diffie-Hellman secret of their key pairs, so they need no token of each other.
"""

from __future__ import annotations

import hmac
from typing import Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from foldaway.errors import MessageError, PlanError, instead_of

Role = Literal["leader", "helper"]

_CURVE = ec.SECP256R1()
_SUITE = Suite(KEM.P256, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def info_of(fingerprint: str, role: Role, number: bytes, arm: str, group: int) -> bytes:
    r"""What a share is of.

    Example:
        >>> info_of("ab12", "helper", bytes(2), "control", 7)
        b'foldaway shares\nhelper\nab12\n0000\n7\ncontrol'
    """
    return f"foldaway shares\n{role}\n{fingerprint}\n{number.hex()}\n{group}\n{arm}".encode()


def public_key(data: bytes) -> ec.EllipticCurvePublicKey:
    """A public key from the 65 bytes of its point.

    Raises:
        PlanError: They are none.
    """
    with instead_of(ValueError, PlanError("a key in `federated.servers` is not that of a server.")):
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, data)


class KeyPair:
    """A server's key pair.

    Example:
        >>> leader, helper = KeyPair.new(), KeyPair.new()
        >>> leader.open(seal(b"share", leader.public, b"for"), b"for")
        b'share'
        >>> leader.with_other(helper.public, b"trial") == helper.with_other(leader.public, b"trial")
        True
    """

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private = private
        points = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        self.public = private.public_key().public_bytes(*points)

    @classmethod
    def new(cls) -> KeyPair:
        """A new one."""
        return cls(ec.generate_private_key(_CURVE))

    @classmethod
    def loads(cls, text: bytes) -> KeyPair:
        """From its PEM.

        Raises:
            ValueError: It is not the PEM of such a key.
        """
        private = serialization.load_pem_private_key(text, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.curve.name != _CURVE.name:
            raise ValueError("not a key of P-256")
        return cls(private)

    def dumps(self) -> bytes:
        """As PEM."""
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """What a device has sealed for this server.

        Raises:
            MessageError: It was sealed for another, for another report, or altered.
        """
        broken = MessageError("a share of the message does not open: it was made for another server, report or plan.")
        with instead_of((InvalidTag, ValueError), broken):
            return _SUITE.decrypt(sealed, self._private, info)

    def with_other(self, public: bytes, purpose: bytes) -> bytes:
        """A key that only this server and the one with this public key can derive."""
        secret = self._private.exchange(ec.ECDH(), public_key(public))
        return HKDF(SHA256(), 32, None, b"foldaway pair\n" + purpose).derive(secret)


def seal(plain: bytes, public: bytes, info: bytes) -> bytes:
    """Seal for a server: the encapsulated key, then the ciphertext."""
    return _SUITE.encrypt(plain, public_key(public), info)


def mac(key: bytes, what: str, *parts: bytes) -> bytes:
    """What proves that a request, or an answer to it, is the other server's."""
    # Each part with its length, so that no two lists of parts are the same bytes.
    data = b"".join(len(part).to_bytes(8, "big") + part for part in (what.encode(), *parts))
    return hmac.digest(key, data, "sha256")
