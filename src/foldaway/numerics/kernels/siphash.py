"""SipHash-2-4 of identifiers under a 128-bit key, straight from Arrow buffers.

The keyed hash is where a raw identifier ends: what goes on is a 64-bit unit number that means nothing without the key.
SipHash is made for this (a pseudorandom function of short messages); its strength is what keeps weights and
identifiers apart.

References:
    Aumasson and Bernstein (2012), SipHash: a fast short-input PRF. INDOCRYPT 2012.
    https://www.aumasson.jp/siphash
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foldaway.errors import RecordError
from foldaway.numerics.kernels.compiling import compile_for, njit, njit_part
from foldaway.numerics.kernels.lanes import load_word, sip_rounds, trailing_zeros

KEY_LENGTH = 16

Words = NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
Text = tuple[np.uint64, np.uint64, np.uint64]

_EIGHT = np.uint64(8)
_TOP = np.uint64(56)

_E4, _E7, _E8 = np.uint64(10**4), np.uint64(10**7), np.uint64(10**8)
_BLOCK = 1024
_ZEROS = np.uint64(0x3030303030303030)
_LAST = np.uint64(1) << np.uint64(56)
_MINUS = np.uint64(ord("-"))


def hash_identifiers(column: pa.Array, key: bytes) -> Words:
    """Hash a column of identifiers under a secret key; no Python object is made of any of them.

    Text is hashed as its UTF-8 octets, and numbers as their decimal text: 17 and "17" are the same unit, whatever a
    file format took them for.

    Args:
        column: what `foldaway.records.values.identifiers` gives: text, binary, integers, or a dictionary of these.
        key: 16 octets.

    Returns:
        One unit number per row.

    Raises:
        RecordError: if an identifier is missing, or the column's type is none of the above.

    Example:
        >>> key = bytes(range(16))
        >>> hex(hash_identifiers(pa.array([bytes(range(15))]), key)[0])  # the example in the SipHash paper
        '0xa129ca6149be45e5'
        >>> numbers, texts = pa.array([17, -4]), pa.array(["17", "-4"])
        >>> bool((hash_identifiers(numbers, key) == hash_identifiers(texts, key)).all())
        True
    """
    if len(key) != KEY_LENGTH:
        raise ValueError(f"The key has {KEY_LENGTH} octets, not {len(key)}.")
    hashes = np.empty(len(column), dtype=np.uint64)
    _hash_array(column, _start(key), hashes)
    return hashes


def _hash_array(column: pa.Array, start: State, hashes: Words) -> None:
    if column.null_count:
        raise RecordError(f"The unit column has {column.null_count} missing values; every record needs a unit.")
    kind = column.type
    if pa.types.is_dictionary(kind):
        _hash_dictionary(column, start, hashes)
    elif pa.types.is_integer(kind):
        _hash_integers(column, start, hashes)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        _hash_octets(column, np.int64, start, hashes)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _hash_octets(column, np.int32, start, hashes)
    elif pa.types.is_fixed_size_binary(kind):
        _hash_octets(pc.cast(column, pa.large_binary()), np.int64, start, hashes)
    elif len(column):
        raise RecordError(f"The unit column has type {kind}; cast it to text or to integers first.")


def _hash_octets(column: pa.Array, offset_type: type[np.signedinteger[Any]], start: State, hashes: Words) -> None:
    if not len(column):
        return
    _, offsets, data = column.buffers()
    octets = _view(data, np.uint8)
    bounds = _view(offsets, offset_type)[column.offset : column.offset + len(column) + 1]
    compile_for(_sip_octets, octets, bounds, start, hashes)
    _sip_octets(octets, bounds, start, hashes)


def _hash_integers(column: pa.Array, start: State, hashes: Words) -> None:
    signed = pa.types.is_signed_integer(column.type)
    values = column.to_numpy().astype(np.int64 if signed else np.uint64, copy=False)
    words = values.view(np.uint64)
    words.flags.writeable = False
    compile_for(_sip_integers, words, signed, start, hashes)
    _sip_integers(words, signed, start, hashes)


def _hash_dictionary(column: pa.DictionaryArray, start: State, hashes: Words) -> None:
    if column.dictionary.null_count or len(column.dictionary) > len(column):
        _hash_array(column.dictionary_decode(), start, hashes)
        return
    known = np.empty(len(column.dictionary), dtype=np.uint64)
    _hash_array(column.dictionary, start, known)
    np.take(known, column.indices.to_numpy(), out=hashes)


def _view(buffer: pa.Buffer | None, kind: type[np.integer[Any]]) -> NDArray[Any]:
    """A buffer as a read-only array: one type to compile for, whoever owns the memory."""
    octets = np.frombuffer(buffer or b"", dtype=np.uint8)
    size = np.dtype(kind).itemsize
    view = octets[: len(octets) // size * size].view(kind)
    view.flags.writeable = False
    return view


def _start(key: bytes) -> State:
    k0, k1 = (np.uint64(int.from_bytes(half, "little")) for half in (key[:8], key[8:]))
    return (
        k0 ^ np.uint64(0x736F6D6570736575),
        k1 ^ np.uint64(0x646F72616E646F6D),
        k0 ^ np.uint64(0x6C7967656E657261),
        k1 ^ np.uint64(0x7465646279746573),
    )


@njit
def _sip_octets(octets: NDArray[np.uint8], bounds: NDArray[Any], start: State, hashes: Words) -> None:
    for i in range(len(hashes)):
        at, end = np.intp(bounds[i]), np.intp(bounds[i + 1])
        state = start
        length = end - at
        while at + 8 <= end:
            state = _compress(state, load_word(octets, at))
            at += 8
        last = np.uint64(length) << _TOP
        if at + 8 <= len(octets):
            last |= load_word(octets, at) & ((np.uint64(1) << (_EIGHT * np.uint64(end - at))) - np.uint64(1))
        else:  # the word would reach past the buffer
            for shift in range(end - at):
                last |= np.uint64(octets[at + shift]) << (_EIGHT * np.uint64(shift))
        hashes[i] = _finish(_compress(state, last))


@njit
def _sip_integers(words: Words, signed: bool, start: State, hashes: Words) -> None:
    for begin in range(0, len(hashes), _BLOCK):
        end = min(begin + _BLOCK, len(hashes))
        most = np.uint64(0)
        for i in range(begin, end):
            most = max(most, words[i])
        if most < _E7:
            # The text is one word with its length, so nothing branches, and LLVM takes several numbers at a time.
            for i in range(begin, end):
                digits = _eight_digits(words[i])
                gone = trailing_zeros(digits | _LAST) >> np.uint64(3)
                hashes[i] = (digits + _ZEROS) >> (_EIGHT * gone) | (_EIGHT - gone) << _TOP
            for i in range(begin, end):
                hashes[i] = _finish(_compress(start, hashes[i]))
        else:
            _sip_any_integers(words[begin:end], signed, start, hashes[begin:end])


@njit_part
def _sip_any_integers(words: Words, signed: bool, start: State, hashes: Words) -> None:
    for i in range(len(hashes)):
        negative = signed and (words[i] >> np.uint64(63)) != np.uint64(0)
        magnitude = np.uint64(0) - words[i] if negative else words[i]
        first, second, third, length = _decimal_text(magnitude, negative)
        last = length << _TOP
        state = start
        while length >= _EIGHT:
            state = _compress(state, first)
            first, second, third = second, third, np.uint64(0)
            length -= _EIGHT
        hashes[i] = _finish(_compress(state, first | last))


@njit_part
def _decimal_text(magnitude: np.uint64, negative: bool) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The decimal text of an integer as three little-endian words, with zeros after its end, and its length."""
    text = np.uint64(0), np.uint64(0), np.uint64(0)
    length = np.uint64(0)
    while magnitude >= _E8:
        text = _before(_eight_digits(magnitude % _E8) + _ZEROS, _EIGHT, text)
        magnitude //= _E8
        length += _EIGHT
    digits = _eight_digits(magnitude)
    # Of the leading zeros, all but the last octet's go.
    gone = trailing_zeros(digits | _LAST) >> np.uint64(3)
    text = _before((digits + _ZEROS) >> (_EIGHT * gone), _EIGHT - gone, text)
    length += _EIGHT - gone
    if negative:
        text = _before(_MINUS, np.uint64(1), text)
        length += np.uint64(1)
    return text[0], text[1], text[2], length


@njit_part
def _before(octets: np.uint64, count: np.uint64, text: Text) -> Text:
    """The text with one to eight octets before it."""
    if count == _EIGHT:
        return octets, text[0], text[1]
    up, down = _EIGHT * count, _EIGHT * (_EIGHT - count)
    return octets | text[0] << up, text[0] >> down | text[1] << up, text[1] >> down | text[2] << up


@njit_part
def _eight_digits(number: np.uint64) -> np.uint64:
    """The digits of a number below 10⁸, leading zeros included, the first in the lowest octet.

    Two halves, then four quarters, then eight digits, each split of all parts at once; the multiplications are
    divisions by 100 and by 10 that are exact for parts of that size.
    """
    halves = number // _E4 | (number % _E4) << np.uint64(32)
    hundreds = (halves * np.uint64(5243) >> np.uint64(19)) & np.uint64(0x0000007F0000007F)
    quarters = hundreds | (halves - np.uint64(100) * hundreds) << np.uint64(16)
    tens = (quarters * np.uint64(103) >> np.uint64(10)) & np.uint64(0x000F000F000F000F)
    return tens | (quarters - np.uint64(10) * tens) << np.uint64(8)


@njit_part
def _compress(state: State, word: np.uint64) -> State:
    v0, v1, v2, v3 = sip_rounds((state[0], state[1], state[2], state[3] ^ word), 2)
    return v0 ^ word, v1, v2, v3


@njit_part
def _finish(state: State) -> np.uint64:
    v0, v1, v2, v3 = sip_rounds((state[0], state[1], state[2] ^ np.uint64(0xFF), state[3]), 4)
    word: np.uint64 = v0 ^ v1 ^ v2 ^ v3
    return word
