"""Numbers as whole numbers modulo 2^64, split into two summands of which each is random by itself.

The helper's summand is what a seed expands to by HKDF-SHA256 (RFC 5869), so a device sends it 32 bytes however many
numbers there are. The leader's is the number less that.
"""

from __future__ import annotations

import hmac
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import MessageError
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.fixed_point import bits_of

Words = NDArray[np.uint64]

SEED: Final = 32

OVERHEAD = 65 + 16
"""How many bytes a seal adds: the encapsulated key, and the tag."""
_LITTLE = np.dtype("<u8")


def count_of(plan: Plan) -> int:
    """How many numbers a device sends: n, and one sum for each value and each ỹ."""
    return 1 + len(bits_of(plan))


def fixed(plan: Plan, n: int, sums: Floats) -> Words:
    """A device's numbers: n, and its sums at their scales, halves rounded up."""
    scaled = np.asarray(sums, dtype=np.float64) * np.exp2(bits_of(plan))
    below = np.floor(scaled)
    whole = below + (scaled - below >= 0.5)
    return np.concatenate([[n], whole]).astype(np.int64).astype(np.uint64)


def expanded(seed: bytes, count: int) -> Words:
    """The words that a seed stands for.

    Example:
        >>> hex(expanded(bytes(32), 1)[0])
        '0xc510a81a94fe2f9d'
    """
    key, block, data = hmac.digest(bytes(32), seed, "sha256"), b"", b""
    for place in range(1, -(-8 * count // 32) + 1):
        block = hmac.digest(key, block + b"foldaway shares" + bytes([place]), "sha256")
        data += block
    return np.frombuffer(data[: 8 * count], dtype=_LITTLE).astype(np.uint64)


def split(words: Words, seed: bytes) -> bytes:
    """The leader's summands, as they travel; the helper's are the seed's."""
    return packed(words - expanded(seed, len(words)))


def packed(words: Words) -> bytes:
    """Words as bytes, little-endian."""
    return np.ascontiguousarray(words, dtype=_LITTLE).tobytes()


def unpacked(data: bytes, count: int) -> Words:
    """Words from bytes, if there are so many."""
    if len(data) != 8 * count:
        raise MessageError(f"the message holds {len(data) / 8:g} numbers where the plan makes {count}.")
    return np.frombuffer(data, dtype=_LITTLE).astype(np.uint64)


def read(plan: Plan, words: Words) -> tuple[NDArray[np.int64], Floats]:
    """What both servers' summands come to, by their last axis: the numbers of records, and the sums."""
    whole = words.astype(np.int64)
    return whole[..., 0], whole[..., 1:] / np.exp2(bits_of(plan))
