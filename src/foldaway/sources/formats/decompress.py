"""Compressed request bodies, unpacked up to a limit."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

from foldaway.errors import IngestError

_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_STEP = 2**20


def codec(encoding: str | None) -> str | None:
    """The codec that a Content-Encoding names; None if the body is as it is.

    One codec, once: a body packed twice is packed to hide its size.

    Raises:
        IngestError: 415, for any other.

    Example:
        >>> codec("GZIP"), codec("identity"), codec(None)
        ('gzip', None, None)
    """
    named = (encoding or "").strip().lower()
    if named in ("", "identity"):
        return None
    if named not in _CODECS:
        raise IngestError(415, "the Content-Encoding is not known; use gzip, zstd or none.")
    return _CODECS[named]


def decompress(body: bytearray, codec: str, limit: int) -> bytearray:
    """The body unpacked, in a buffer of its own; several members or frames in a row count as one.

    A body that would unpack to more than `limit` bytes is left after that many.

    Raises:
        IngestError: 400 if it is damaged or cut short, 413 if it unpacks to more than the limit.

    Example:
        >>> import gzip
        >>> decompress(bytearray(gzip.compress(b"one") + gzip.compress(b" two")), "gzip", 100)
        bytearray(b'one two')
    """
    unpacked = bytearray()
    words = ""
    try:
        _unpack(body, codec, unpacked, limit + 1)
    except (OSError, pa.ArrowException) as error:
        words = f"the body is not valid {codec} ({type(error).__name__}): it is damaged or cut short."
    if words:
        wipe(unpacked)
        raise IngestError(400, words)
    if len(unpacked) > limit:
        wipe(unpacked)
        raise IngestError(413, f"the body unpacks to more than {limit:,} bytes; send smaller batches.")
    return unpacked


def _unpack(body: bytearray, codec: str, unpacked: bytearray, most: int) -> None:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(body)), codec) as stream:
        while len(unpacked) < most:
            at = len(unpacked)
            unpacked.extend(bytes(min(_STEP, most - at)))
            # Straight into place, so that there is no other copy to overwrite.
            with memoryview(unpacked) as whole, whole[at:] as room:
                found = stream.readinto(room)
            del unpacked[at + found :]
            if not found:
                break


def wipe(buffer: bytearray) -> None:
    """Overwrite a buffer with zeros, and then empty it unless something still points into it.

    Example:
        >>> body = bytearray(b"secret")
        >>> wipe(body)
        >>> body
        bytearray(b'')
    """
    if buffer:  # in place: a slice of zeros would first have to be made
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(buffer)), 0, len(buffer))
    with suppress(BufferError):  # an Arrow table on it may still be alive; it reads zeros now
        buffer.clear()
