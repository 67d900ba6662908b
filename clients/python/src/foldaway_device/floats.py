"""Bytes and numbers as messages have them."""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence

LARGEST = 1e40


def base64(data: bytes) -> str:
    """Bytes in base64, on one line."""
    return b2a_base64(data, newline=False).decode()


def from_base64(text: str) -> bytes:
    """The bytes again."""
    return a2b_base64(text)


def packed(values: Sequence[float]) -> str:
    """Numbers of 64 bits, little-endian, in base64.

    Example:
        >>> packed([1.0, -0.5])
        'AAAAAAAA8D8AAAAAAADgvw=='
    """
    return base64(struct.pack(f"<{len(values)}d", *values))


def unpacked(text: str) -> list[float]:
    """The numbers again."""
    data = from_base64(text)
    return list(struct.unpack(f"<{len(data) // 8}d", data))
