"""Which arm a unit is in: a number between 0 and 1, drawn by a hash, and the arms' probabilities that divide it.

A public draw is SHA-256 of the design and the identifier, so that any language can do it alone; whoever knows both
knows the arm. A secret draw is HMAC-SHA-256 of the identifier, under a key that only the trial has. `docs/arms.md`
spells both out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from itertools import accumulate
from numbers import Integral

# Hexadecimal digits of the hash that make the number: 52 bits, which every language's floating point holds exactly.
_DIGITS = 13

_PUBLIC, _GROUP = "foldaway arm", "foldaway group"

# As many hexadecimal digits as the most groups need, which are a power of two.
_GROUP_DIGITS = 3


def public_arm(shares: Mapping[str, float], design: str, unit: str | int | bytes) -> str:
    """The arm that follows from what everybody may know: the arms' probabilities, the design, the identifier."""
    message = f"{_PUBLIC}\n{design}\n".encode() + _identifier(unit)
    return _arm(shares, hashlib.sha256(message).hexdigest())


def device_group(groups: int, fingerprint: str, identity: bytes) -> int:
    """The group of a device, from 16 random bytes that it has made; its arm is public, with these as the identifier.

    For the design stands the plan's fingerprint: a client has it from the plan's bytes, and could not be sure to write
    the design's as we do.
    """
    message = f"{_GROUP}\n{fingerprint}\n".encode() + identity
    return int(hashlib.sha256(message).hexdigest()[:_GROUP_DIGITS], 16) % groups


def secret_arm(shares: Mapping[str, float], key: bytes, unit: str | int | bytes) -> str:
    """The arm that follows from a secret key, and from nothing without it."""
    return _arm(shares, hmac.new(key, _identifier(unit), hashlib.sha256).hexdigest())


def _identifier(unit: str | int | bytes) -> bytes:
    """17, "17" and b"17" are the same unit."""
    if isinstance(unit, bool) or not isinstance(unit, str | Integral | bytes):
        raise TypeError("a unit must be text, a whole number or bytes")
    # Text that is not valid Unicode gets an arm like any other: an error would quote the identifier.
    return unit if isinstance(unit, bytes) else str(unit).encode(errors="surrogatepass")


def _arm(shares: Mapping[str, float], digest: str) -> str:
    uniform = int(digest[:_DIGITS], 16) / 16**_DIGITS
    for arm, upper in zip(shares, accumulate(shares.values()), strict=True):
        if uniform < upper:
            return arm
    return arm  # the probabilities add up to 1 only up to rounding
