"""Weights of a few rows, packed: for each replicate one small number per group of rows that names a table entry.

A block of rows is dealt into eight groups, like cards: row r * 8 + g of the block is row r of group g. The weights
of a group's rows under one replicate, read as digits, make the group's code, and a table with one entry per code
(`accumulate.py`) gives what they add. Five rows of one bit make 32 codes, two rows of one digit 0 to 3 make 16.

Codes of eight neighbouring replicates are the octets of a word: replicate b's code for group g is octet
`64 * (b // 8) + 8 * g + b % 8`. All loops run over rows or groups, which are constants, side by side in memory.
"""

import numpy as np
from numpy.typing import NDArray

from foldaway.kernels.compiling import njit
from foldaway.kernels.lanes import GROUPS, trailing_zeros
from foldaway.kernels.philox import philox
from foldaway.kernels.weights import (
    ABOVE_0,
    ABOVE_1,
    ABOVE_2,
    BITS_STREAM,
    OCTETS_STREAM,
    REST,
    REST_BOUNDS,
    REST_STREAM,
)

SPAN = 128  # replicates are made this many at a time

BIT_ROWS = 5 * GROUPS
OCTET_ROWS = 2 * GROUPS

_EVERY_OCTET = np.uint64(0x0101010101010101)
_LOW_SEVEN = np.uint64(0x7F) * _EVERY_OCTET
_HIGH = np.uint64(0x80) * _EVERY_OCTET
_TO_REST = np.uint64(256 - int(REST)) * _EVERY_OCTET


@njit
def bit_codes(units: NDArray[np.uint64], first: int, spans: int, codes: NDArray[np.uint64]) -> None:
    """Codes of double-or-nothing weights, a digit of 1 standing for the weight 2.

    Args:
        units: the unit numbers of a block of `BIT_ROWS` rows.
        first: the first replicate, a multiple of `SPAN`.
        spans: how many times `SPAN` replicates.
        codes: the words to write, one per eight replicates and group.
    """
    low = np.empty(BIT_ROWS, dtype=np.uint64)
    high = np.empty(BIT_ROWS, dtype=np.uint64)
    for span in range(spans):
        block = np.uint64(first // SPAN + span)
        for row in range(BIT_ROWS):
            low[row], high[row] = philox(units[row], block, BITS_STREAM)
        _pack_bits(low, codes[128 * span :])
        _pack_bits(high, codes[128 * span + 64 :])


@njit
def _pack_bits(words: NDArray[np.uint64], codes: NDArray[np.uint64]) -> None:
    for shift in range(8):
        for group in range(GROUPS):
            code = np.uint64(0)
            for digit in range(BIT_ROWS // GROUPS):
                word = words[digit * GROUPS + group]
                code |= ((word >> np.uint64(shift)) & _EVERY_OCTET) << np.uint64(digit)
            codes[shift * GROUPS + group] = code


@njit
def octet_codes(
    units: NDArray[np.uint64],
    first: int,
    spans: int,
    codes: NDArray[np.uint64],
    rest_rows: NDArray[np.int64],
    rest_replicates: NDArray[np.int64],
) -> int:
    """Codes of Poisson weights up to 3, and the list of those that must be drawn once more.

    The latter stand as 3 in the codes; `rest_excess` says by how much that is wrong.

    Args:
        units: the unit numbers of a block of `OCTET_ROWS` rows.
        first: the first replicate, a multiple of `SPAN`.
        spans: how many times `SPAN` replicates.
        codes: the words to write, one per eight replicates and group.
        rest_rows: the rows, within the block, of the weights to draw once more.
        rest_replicates: their replicates, counted from `first`. Both lists need room for four more than all weights.

    Returns:
        How many weights must be drawn once more.
    """
    words = np.empty(8 * OCTET_ROWS, dtype=np.uint64)
    masks = np.empty(OCTET_ROWS, dtype=np.uint64)
    octets = words.view(np.uint8)
    code_octets = codes.view(np.uint8)
    found = 0
    for half in range(2 * spans):
        for pair in range(4):
            _fill(units, np.uint64(first // 16 + 4 * half + pair), words[2 * pair * OCTET_ROWS :])
        _pack_digits(octets, code_octets[512 * half :])
        _mark_rest(words, masks)
        for row in range(OCTET_ROWS):
            found = _list_bits(masks[row], row, 64 * half, rest_rows, rest_replicates, found)
    return found


@njit
def _fill(units: NDArray[np.uint64], block: np.uint64, words: NDArray[np.uint64]) -> None:
    for row in range(OCTET_ROWS):
        words[row], words[OCTET_ROWS + row] = philox(units[row], block, OCTETS_STREAM)


@njit
def _pack_digits(octets: NDArray[np.uint8], codes: NDArray[np.uint8]) -> None:
    for word in range(8):
        for place in range(8 * GROUPS):
            low = octets[8 * word * OCTET_ROWS + place]
            high = octets[8 * word * OCTET_ROWS + 8 * GROUPS + place]
            low_digit = np.uint8(low >= ABOVE_0) + np.uint8(low >= ABOVE_1) + np.uint8(low >= ABOVE_2)
            high_digit = np.uint8(high >= ABOVE_0) + np.uint8(high >= ABOVE_1) + np.uint8(high >= ABOVE_2)
            codes[64 * word + place] = np.uint8(low_digit + 4 * high_digit)


@njit
def _mark_rest(words: NDArray[np.uint64], masks: NDArray[np.uint64]) -> None:
    """One bit per octet of a row's eight words that is at least REST: bit 8j + w for octet j of word w."""
    for row in range(OCTET_ROWS):
        mask = np.uint64(0)
        for word in range(8):
            octets = words[word * OCTET_ROWS + row]
            mask |= (((octets & _LOW_SEVEN) + _TO_REST) & octets & _HIGH) >> np.uint64(7 - word)
        masks[row] = mask


@njit
def _list_bits(
    mask: np.uint64,
    row: int,
    first: int,
    rest_rows: NDArray[np.int64],
    rest_replicates: NDArray[np.int64],
    found: int,
) -> int:
    """Append the replicates of a mask's set bits."""
    while True:
        # Four at a time, set or not: how many there are is not for a branch predictor to guess.
        ahead = mask
        for i in range(4):
            bit = trailing_zeros(ahead)
            ahead &= ahead - np.uint64(1)
            rest_rows[found + i] = row
            rest_replicates[found + i] = first + 8 * (bit & 7) + (bit >> 3)
        count = 0
        for i in range(4):
            count += mask != np.uint64(0)
            mask &= mask - np.uint64(1)
        found += count
        if mask == np.uint64(0):
            return found


@njit
def rest_excess(
    units: NDArray[np.uint64],
    first: int,
    rest_rows: NDArray[np.int64],
    rest_replicates: NDArray[np.int64],
    draws: NDArray[np.uint64],
    excess: NDArray[np.float64],
) -> None:
    """By how much each listed weight, drawn from the rest of the Poisson law, differs from 3."""
    largest = np.uint64(0)
    for i in range(len(excess)):
        draw = philox(units[rest_rows[i]], np.uint64(first + rest_replicates[i]), REST_STREAM)[0]
        draws[i] = draw
        largest = max(largest, draw)
        excess[i] = -3.0
    for bound in REST_BOUNDS:
        if bound > largest:
            break
        for i in range(len(excess)):
            excess[i] += 1.0 if draws[i] >= bound else 0.0
