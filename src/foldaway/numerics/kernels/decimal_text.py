"""The decimal text of an integer, eight characters to a word, without a string."""

import numpy as np

from foldaway.numerics.kernels.compiling import njit_inline
from foldaway.numerics.kernels.lanes import trailing_zeros

_E4, _E8, _E16 = np.uint64(10**4), np.uint64(10**8), np.uint64(10**16)
_ZEROS = np.uint64(0x3030303030303030)
_MINUS = np.uint64(ord("-"))


@njit_inline
def decimal_text(magnitude: np.uint64, negative: bool) -> tuple[np.uint64, np.uint64, np.uint64, np.intp]:
    """The text as three little-endian words, with zeros after its end, and its length."""
    first = _eight_digits(magnitude // _E16)
    second = _eight_digits(magnitude // _E8 % _E8)
    third = _eight_digits(magnitude % _E8)
    # 24 digits, of which the leading zeros, at least four and at most 23, go.
    gone = np.uint64(23)
    if first != np.uint64(0):
        gone = trailing_zeros(first) >> np.uint64(3)
    elif second != np.uint64(0):
        gone = np.uint64(8) + (trailing_zeros(second) >> np.uint64(3))
    elif third != np.uint64(0):
        gone = np.uint64(16) + (trailing_zeros(third) >> np.uint64(3))
    first, second, third = first + _ZEROS, second + _ZEROS, third + _ZEROS
    if negative:
        gone -= np.uint64(1)
        sign = (_MINUS - np.uint64(ord("0"))) << (np.uint64(8) * (gone & np.uint64(7)))
        if gone < np.uint64(8):
            first += sign
        elif gone < np.uint64(16):
            second += sign
        else:
            third += sign
    length = np.intp(24) - np.intp(gone)
    while gone >= np.uint64(8):
        first, second, third = second, third, np.uint64(0)
        gone -= np.uint64(8)
    if gone > np.uint64(0):
        down, up = np.uint64(8) * gone, np.uint64(64) - np.uint64(8) * gone
        first = (first >> down) | (second << up)
        second = (second >> down) | (third << up)
        third = third >> down
    return first, second, third, length


@njit_inline
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
