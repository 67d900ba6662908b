"""Mode shares: what mode sums sends, in two halves, each random by itself and sealed for a server of its own."""

from __future__ import annotations

import hmac
import math
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from foldaway_device.errors import PlanError
from foldaway_device.floats import base64, from_base64
from foldaway_device.modes.mode import Holding
from foldaway_device.modes.sums import Sums
from foldaway_device.plan import Plan, columns_of

_WORDS = 2**64
# Sums of all devices stay below 2^62.
_ROOM = 62


class Shares(Sums):
    """The numbers of mode sums, of which no server sees any."""

    name = "shares"

    def require(self) -> None:
        """Refuse to begin without the library that seals.

        Raises:
            PlanError: It is not installed.
        """
        try:
            import cryptography.hazmat.primitives.hpke  # noqa: F401
        except ImportError:
            raise PlanError(
                'mode "shares" needs cryptography 47 or later: pip install "foldaway-device[shares]".'
            ) from None

    def report(self, plan: Plan, holding: Holding, published: Mapping[str, Any] | None) -> dict[str, Any]:
        """The group and both halves: the helper's is a seed, the leader's the numbers less what it stands for."""
        return halves(plan, holding, os.urandom(32))


def halves(plan: Plan, holding: Holding, seed: bytes) -> dict[str, Any]:
    """The report that a seed gives."""
    number, arm, group, n, sums = holding
    plain = {"leader": leaders_half(fixed(plan, n, sums), seed), "helper": seed}
    sealed = {
        role: base64(_seal(half, plan.servers[role], info_of(plan.fingerprint, role, from_base64(number), arm, group)))
        for role, half in plain.items()
    }
    return {"number": number, "arm": arm, "group": group, **sealed}


def fixed(plan: Plan, n: int, sums: Sequence[float]) -> list[int]:
    """n, and the sums at their scales, halves rounded up."""
    return [n, *(_rounded(math.ldexp(number, bits)) for number, bits in zip(sums, bits_of(plan), strict=True))]


def _rounded(number: float) -> int:
    below = math.floor(number)
    return below + (number - below >= 0.5)


def leaders_half(words: Sequence[int], seed: bytes) -> bytes:
    """The words less those that the seed stands for, modulo 2^64."""
    parts = zip(words, expanded(seed, len(words)), strict=True)
    return struct.pack(f"<{len(words)}Q", *((word - other) % _WORDS for word, other in parts))


def expanded(seed: bytes, count: int) -> Sequence[int]:
    """The words that a seed stands for: HKDF-SHA256 without salt."""
    key, block, data = hmac.digest(bytes(32), seed, "sha256"), b"", b""
    for place in range(1, -(-count // 4) + 1):
        block = hmac.digest(key, block + b"foldaway shares" + bytes([place]), "sha256")
        data += block
    return struct.unpack(f"<{count}Q", data[: 8 * count])


def info_of(fingerprint: str, role: str, number: bytes, arm: str, group: int) -> bytes:
    """What a half is of, without which it does not open."""
    return f"foldaway shares\n{role}\n{fingerprint}\n{number.hex()}\n{group}\n{arm}".encode()


def bits_of(plan: Plan) -> list[int]:
    """How many binary places of each sum are sent: as many as no sum of all devices can overflow with."""
    records = float(plan.device_records) * float(plan.expected_units or 0)
    y = [max(map(abs, value.within(plan.bounds.get(value.column, (0.0, 0.0))))) for value in plan.values]
    return [_ROOM - math.frexp(most * records)[1] for most in [*y, *_adjusted(plan, y)]]


def _adjusted(plan: Plan, y: Sequence[float]) -> list[float]:
    """The largest absolute number that a record can add to each sum of ỹ."""
    found: list[float] = []
    if plan.coefficients is None:
        return found
    columns = [name for each in plan.covariates for name in columns_of(each, plan.levels.get(each))]
    for value, most in zip(plan.values, y, strict=True):
        for name in columns:
            slope, center = plan.coefficients.slopes[value.name][name], plan.coefficients.center[name]
            most += max(abs(slope * (end - center)) for end in plan.bounds.get(name, (0.0, 1.0)))
        found.append(most)
    return found


def _seal(plain: bytes, key: str, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64(key))
    return Suite(KEM.P256, KDF.HKDF_SHA256, AEAD.AES_128_GCM).encrypt(plain, public, info)
