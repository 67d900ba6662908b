"""Weights of a few rows, packed: for each replicate one small number per group of rows that names a table entry.

A block of rows is dealt into eight groups, like cards: row 8r + g of the block is row r of group g. The weights of a
group's rows under one replicate, read as digits, make the group's code, and a table with one entry per code
(`accumulate.py`) says what they add. Five rows of one bit make 32 codes, two rows of a digit 0 to 3 make 16.

A code is an octet, `place` says which. All loops run over rows or groups, which are constants in number and
neighbours in memory, as vector instructions want it.
"""

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats, Hashes
from foldaway.numerics.kernels.compiling import njit, njit_inline
from foldaway.numerics.kernels.lanes import GROUPS, count_bits, gather_bits, trailing_zeros
from foldaway.numerics.kernels.philox import philox
from foldaway.numerics.kernels.weights import (
    BITS_STREAM,
    FROM_1,
    FROM_2,
    FROM_3,
    OCTETS_STREAM,
    REST,
    REST_BOUNDS,
    REST_STREAM,
)

Words = NDArray[np.uint64]
Octets = NDArray[np.uint8]

SPAN = 128  # replicates are made this many at a time
WORDS = SPAN  # words of codes per span: eight replicates share a word, which each of eight groups has

BIT_DIGITS = 5
BIT_ROWS = BIT_DIGITS * GROUPS
OCTET_DIGITS = 2
OCTET_ROWS = OCTET_DIGITS * GROUPS

_EVERY_OCTET = np.uint64(0x0101010101010101)
_LOW_SEVEN = np.uint64(0x7F) * _EVERY_OCTET
_HIGH = np.uint64(0x80) * _EVERY_OCTET
_FROM_REST = np.uint64(128 - REST) * _EVERY_OCTET
_ROW = np.uint64(32)  # in the list of weights to draw once more: the row above this bit, the replicate below
_REPLICATE = np.uint64(0xFFFFFFFF)


@njit_inline
def place(b: int) -> int:
    """The octet with replicate b's code for group 0; group g's is 8g further."""
    return 64 * (8 * (b >> 6) + (b & 7)) + ((b >> 3) & 7)


@njit
def bit_codes(units: Hashes, first: int, spans: int, codes: Words) -> None:
    """Codes of double-or-nothing weights, a digit of 1 standing for the weight 2.

    Args:
        units: the unit numbers of a block of `BIT_ROWS` rows.
        first: the first replicate, a multiple of `SPAN`.
        spans: how many times `SPAN` replicates.
        codes: the words to write.
    """
    low = np.empty(BIT_ROWS, dtype=np.uint64)
    high = np.empty(BIT_ROWS, dtype=np.uint64)
    for span in range(spans):
        block = np.uint64(first // SPAN + span)
        for row in range(BIT_ROWS):
            low[row], high[row] = philox(units[row], block, BITS_STREAM)
        gather_bits(low, BIT_DIGITS, codes, WORDS * span)
        gather_bits(high, BIT_DIGITS, codes, WORDS * span + WORDS // 2)


@njit
def octet_codes(units: Hashes, first: int, spans: int, codes: Words, rest: Words) -> np.intp:
    """Codes of Poisson weights up to 3, and the list of the weights that must be drawn once more.

    The latter stand as 0 in the codes, and `draw_rest` says what they are.

    Args:
        units: the unit numbers of a block of `OCTET_ROWS` rows.
        first: the first replicate, a multiple of `SPAN`.
        spans: how many times `SPAN` replicates.
        codes: the words to write.
        rest: the list to write; needs room for four more than all weights.

    Returns:
        The length of the list.
    """
    words = np.empty(8 * OCTET_ROWS, dtype=np.uint64)
    octets = words.view(np.uint8)
    masks = np.empty(OCTET_ROWS, dtype=np.uint64)
    found = np.intp(0)
    for half in range(2 * spans):
        for pair in range(4):
            block = np.uint64(first // 16 + 4 * half + pair)
            _fill(units, block, words[2 * pair * OCTET_ROWS :])
        _pack_digits(octets, codes[WORDS // 2 * half :].view(np.uint8))
        _mark_rest(words, masks)
        for row in range(OCTET_ROWS):
            start = (np.uint64(row) << _ROW) + np.uint64(64 * half)
            found = _list_bits(masks[row], start, rest, found)
    return found


@njit
def draw_rest(units: Hashes, first: int, rest: Words, draws: Words, drawn: Floats) -> None:
    """Draw the weights in the list from the rest of the Poisson law."""
    for i in range(len(rest)):
        draws[i] = units[rest[i] >> _ROW]
    for i in range(len(rest)):
        draws[i] = philox(draws[i], np.uint64(first) + (rest[i] & _REPLICATE), REST_STREAM)[0]
    largest = np.uint64(0)
    for i in range(len(rest)):
        largest = max(largest, draws[i])
        drawn[i] = 0.0
    for bound in REST_BOUNDS:
        if bound > largest:
            break
        for i in range(len(rest)):
            drawn[i] += 1.0 if draws[i] >= bound else 0.0


@njit_inline
def row_and_replicate(listed: np.uint64) -> tuple[np.intp, np.intp]:
    """What an entry of the list stands for: a row of the block, and a replicate counted from the first."""
    return np.intp(listed >> _ROW), np.intp(listed & _REPLICATE)


@njit
def _fill(units: Hashes, block: np.uint64, words: Words) -> None:
    for row in range(OCTET_ROWS):
        words[row], words[OCTET_ROWS + row] = philox(units[row], block, OCTETS_STREAM)


@njit
def _pack_digits(octets: Octets, codes: Octets) -> None:
    for word in range(8):
        for at in range(8 * GROUPS):
            low = octets[8 * word * OCTET_ROWS + at]
            high = octets[8 * word * OCTET_ROWS + 8 * GROUPS + at]
            low_digit = np.uint8(low >= FROM_1) + np.uint8(low >= FROM_2) + np.uint8(low >= FROM_3)
            high_digit = np.uint8(high >= FROM_1) + np.uint8(high >= FROM_2) + np.uint8(high >= FROM_3)
            codes[8 * GROUPS * word + at] = np.uint8(low_digit + 4 * high_digit)


@njit
def _mark_rest(words: Words, masks: Words) -> None:
    """Set bit 8j + w of a row's mask where octet j of the row's word w is below REST."""
    for row in range(OCTET_ROWS):
        mask = np.uint64(0)
        for word in range(8):
            octets = words[word * OCTET_ROWS + row]
            others = ((octets & _LOW_SEVEN) + _FROM_REST) | octets  # their high bits are set
            mask |= (~others & _HIGH) >> np.uint64(7 - word)
        masks[row] = mask


@njit
def _list_bits(mask: np.uint64, start: np.uint64, rest: Words, found: np.intp) -> np.intp:
    """Append the positions of a mask's set bits, counted from a start."""
    end = found + np.intp(count_bits(mask))
    while True:
        # Four at a time, set or not: a mask has one or two, which no branch predictor can guess.
        for i in range(4):
            rest[found + i] = start + trailing_zeros(mask)
            mask &= mask - np.uint64(1)
        found += 4
        if mask == np.uint64(0):
            return end
