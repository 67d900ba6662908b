"""The law of the bootstrap weights: how a unit number and a replicate number make a weight.

Every record of a unit has the same weights, in whatever batch, shard or month it comes (Bakshy and Eckles 2013;
the paper's Algorithm 4), because they are a function of the unit number alone. The unit number is a keyed hash, so
without the key nobody can tell whose weights they are.

- "poisson": Poisson(1), the online bootstrap. An octet of the unit's stream decides a replicate's weight in 250 of its
  256 values: 94 of them mean 0, 94 mean 1, 47 mean 2 and 15 mean 3, the whole parts of 256 e⁻¹/w!. The other six, one
  weight in 43, are drawn once more from what is then left of the law, with 64 further bits: each probability is
  exact to 2⁻⁶⁹.
- "double-or-nothing": 0 or 2 with probability 1/2 (Owen and Eckles 2012). Bit b of the stream decides replicate b's.

`tests/written_weights.py` has the definition, one weight at a time. Here they are made for a few rows, and packed: for
each replicate one small number per group of rows that names a table entry.

A block of rows is dealt into eight groups, like cards: row 8r + g of the block is row r of group g. The weights of a
group's rows under one replicate, read as digits, make the group's code, and a table with one entry per code
(`accumulate.py`) says what they add. Five rows of one bit make 32 codes, two rows of a digit 0 to 3 make 16.

A code is an octet, `place` says which. All loops run over rows or groups, which are constants in number and
neighbours in memory, as vector instructions want it.

References:
    Bakshy and Eckles (2013), Uncertainty in online experiments with dependent data. KDD '13.
    Owen and Eckles (2012), Bootstrapping data arrays of arbitrary order. Annals of Applied Statistics 6(3).
"""

from fractions import Fraction
from math import factorial
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats, Hashes
from foldaway.numerics.kernels.compiling import njit, njit_inline
from foldaway.numerics.kernels.lanes import GROUPS, count_bits, gather_bits, trailing_zeros
from foldaway.numerics.kernels.philox import philox

Words = NDArray[np.uint64]
Octets = NDArray[np.uint8]
Kind = Literal["poisson", "double-or-nothing"]

# Counters of one purpose never meet those of another.
BITS_STREAM = np.uint64(1)
OCTETS_STREAM = np.uint64(2)
REST_STREAM = np.uint64(3)


def _cells() -> list[Fraction]:
    """256 e⁻¹/w! for w = 0, 1, …: how many of an octet's values each weight should have."""
    inverse_e = sum((Fraction((-1) ** i, factorial(i)) for i in range(40)), Fraction(0))  # the next: below 2⁻¹⁵⁰
    return [256 * inverse_e / factorial(weight) for weight in range(40)]


def _rest_bounds() -> list[int]:
    """The 64-bit numbers from which on a weight drawn from the rest of the law is 1, is 2, and so on."""
    left = [cells - int(cells) if weight < 4 else cells for weight, cells in enumerate(_cells())]
    bounds = [round(2**64 * sum(left[: weight + 1]) / REST) for weight in range(40)]
    return [bound for bound in bounds if bound < 2**64]


WHOLE_CELLS = [int(cells) for cells in _cells()[:4]]
REST = 256 - sum(WHOLE_CELLS)  # an octet below this means "draw once more"; then come the cells of 0, 1, 2 and 3
FROM_1, FROM_2, FROM_3 = (REST + sum(WHOLE_CELLS[:weight]) for weight in (1, 2, 3))
REST_BOUNDS = np.array(_rest_bounds(), dtype=np.uint64)

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


def check_kind(kind: str) -> None:
    """Refuse a name that is no kind of weights."""
    if kind not in get_args(Kind):
        raise ValueError(f"The kinds of bootstrap weights are {', '.join(get_args(Kind))}; {kind!r} is none of them.")


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
