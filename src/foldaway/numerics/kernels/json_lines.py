r"""Objects in JSON, one to a line, taken apart where they are plain: where each wanted member's value lies in the text.

Plain are objects whose members are numbers, true, false, null and strings, as programs write them. Whatever else JSON
may be, escapes in a wanted string or members inside of members, is not taken apart here: the kernel says so, and the
reader takes a parser. So a line that this kernel takes must be valid JSON, and its values the ones a parser finds; but
not every valid line need be taken.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.kernels.compiling import njit, njit_copied
from foldaway.numerics.kernels.lanes import load_word, trailing_zeros

Octets = NDArray[np.uint8]
Places = NDArray[np.int32]

ABSENT, FALSE, TRUE = -1, -2, -3
"""In place of where a value begins: there is none or it is null; a truth value where a number is wanted."""

NOT_PLAIN = -1

_ORDER = 64  # members of a line of which it is remembered what they were

_LONGEST_NUMBER = 32  # with an exponent of two digits at most, none that is taken is too large for a double

_QUOTE, _BACKSLASH, _MINUS, _PLUS, _POINT, _ZERO, _NINE = 34, 92, 45, 43, 46, 48, 57
_COMMA, _COLON, _OPEN, _CLOSE, _NEWLINE, _SPACE = 44, 58, 123, 125, 10, 32

# Eight octets are looked at together, as one word, and the high bit of an octet marks it. A carry can mark wrongly, but
# only octets after one that is marked rightly, and the first is the one that counts.
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _SPACES, _ZEROS = (_ONES * np.uint64(each) for each in (_QUOTE, _BACKSLASH, _SPACE, _ZERO))
_FROM_TEN = _ONES * np.uint64(0x80 - 10)  # added to ten or more, it sets the high bit


@njit
def take_apart(
    text: Octets, names: Octets, ends: Places, numeric: NDArray[np.bool_], begin: Places, end: Places
) -> int:
    """Find the wanted members of every line's object.

    Args:
        text: The lines, each with its end: no loop runs past that, so none looks for the end of the text.
        names: The wanted names, one after the other, and eight octets more.
        ends: Where each name ends among these.
        numeric: Of which names a number is wanted, not text.
        begin: Where each value begins in the text, by name and line; to be written.
        end: Where it ends; to be written.

    Returns:
        The number of objects, or `NOT_PLAIN`.
    """
    rows, at = 0, 0
    order = np.zeros(_ORDER, dtype=np.int64)
    while at < len(text):
        at = _skip(text, at)
        if text[at] != _NEWLINE:
            if text[at] != _OPEN:  # before anything is written: places are for as many rows as there are braces
                return NOT_PLAIN
            for column in range(len(ends)):
                begin[column, rows] = ABSENT
                end[column, rows] = ABSENT
            at = _object(text, at, names, ends, numeric, order, rows, begin, end)
            if at == NOT_PLAIN:
                return NOT_PLAIN
            rows += 1
        at += 1
    return rows


@njit
def most_objects(text: Octets) -> int:
    """How many objects the text can hold: empty lines, of which there may be very many, hold none."""
    braces = 0
    for octet in text:
        braces += octet == _OPEN
    return braces


@njit
def width(begin: Places, end: Places) -> int:
    """The octets of one column's values together, as `gather` writes them."""
    octets = 0
    for row in range(len(begin)):
        octets += end[row] - begin[row] if begin[row] >= 0 else begin[row] != ABSENT
    return octets


@njit
def gather(text: Octets, begin: Places, end: Places, offsets: NDArray[np.int32], out: Octets) -> None:
    """Copy the values of one column one after the other; `offsets` says where each begins, and is written here."""
    to = 0
    for row in range(len(begin)):
        offsets[row] = to
        if begin[row] >= 0:
            for at in range(begin[row], end[row]):
                out[to] = text[at]
                to += 1
        elif begin[row] != ABSENT:
            out[to] = _ZERO + (begin[row] == TRUE)
            to += 1
    offsets[len(begin)] = to


@njit_copied
def _skip(text: Octets, at: int) -> int:
    """The next place without a blank; line ends are none."""
    while text[at] == _SPACE or text[at] == 9 or text[at] == 13:
        at += 1
    return at


@njit_copied
def _object(
    text: Octets,
    at: int,
    names: Octets,
    ends: Places,
    numeric: NDArray[np.bool_],
    order: NDArray[np.int64],
    row: int,
    begin: Places,
    end: Places,
) -> int:
    """Find the members of the object that begins here; where its line ends, or `NOT_PLAIN`.

    `order` holds which wanted name each member of the line before had: lines are mostly alike.
    """
    at = _skip(text, at + 1)
    if text[at] == _CLOSE:
        return _line_end(text, at + 1)
    member = 0
    while True:
        column = order[member]
        start = at + 1
        if _stands(text, at, names, ends, column):
            at = start + _length(ends, column) + 1
        else:
            at = _string(text, at, False)
            if at == NOT_PLAIN:
                return NOT_PLAIN
            column = _column(text, start, at - 1, names, ends)
            order[member] = max(column, 0)
        member = min(member + 1, _ORDER - 1)
        if column < 0 and _beyond_ascii(text, start, at - 1):
            return NOT_PLAIN
        at = _skip(text, at)
        if text[at] != _COLON:
            return NOT_PLAIN
        at = _skip(text, at + 1)
        value = at
        at = _value(text, at, column < 0)
        if at == NOT_PLAIN:
            return NOT_PLAIN
        if column >= 0:
            if begin[column, row] != ABSENT or end[column, row] != ABSENT:
                return NOT_PLAIN  # twice; the last one counts
            if not _place(text, value, at, numeric[column], column, row, begin, end):
                return NOT_PLAIN
        at = _skip(text, at)
        if text[at] == _CLOSE:
            return _line_end(text, at + 1)
        if text[at] != _COMMA:
            return NOT_PLAIN
        at = _skip(text, at + 1)


@njit_copied
def _line_end(text: Octets, at: int) -> int:
    at = _skip(text, at)
    return at if text[at] == _NEWLINE else NOT_PLAIN


@njit_copied
def _length(ends: Places, column: int) -> int:
    return int(ends[column] - (ends[column - 1] if column else 0))


@njit_copied
def _eight(text: Octets, at: int) -> Any:
    """The eight octets from there on as a word, the first lowest; behind the end of the text there are zeros."""
    if at + 8 <= len(text):
        return load_word(text, at)
    word = np.uint64(0)
    for i in range(len(text) - at):
        word |= np.uint64(text[at + i]) << np.uint64(8 * i)
    return word


@njit_copied
def _first(marked: np.uint64) -> Any:
    """The place of the first octet in a word that is marked, or 8."""
    return np.int64(trailing_zeros(marked & _HIGH_BITS) >> np.uint64(3))


@njit_copied
def _stands(text: Octets, at: int, names: Octets, ends: Places, column: int) -> bool:
    """Whether a wanted name stands there, between quotes."""
    first = ends[column - 1] if column else 0
    length = ends[column] - first
    if text[at] != _QUOTE:
        return False
    at += 1
    for i in range(0, length, 8):
        differ = _eight(text, at + i) ^ load_word(names, first + i)
        if length - i < 8:
            differ &= (np.uint64(1) << np.uint64(8 * (length - i))) - np.uint64(1)
        if differ:
            return False
    return bool(text[at + length] == _QUOTE)


@njit_copied
def _column(text: Octets, start: int, stop: int, names: Octets, ends: Places) -> int:
    """Which of the wanted names lies between the two, or -1."""
    for column in range(len(ends)):
        if _length(ends, column) == stop - start and _stands(text, start - 1, names, ends, column):
            return column
    return -1


@njit_copied
def _beyond_ascii(text: Octets, start: int, stop: int) -> bool:
    bits = 0
    for at in range(start, stop):
        bits |= text[at]
    return bits >= 128


@njit_copied
def _value(text: Octets, at: int, unwanted: bool) -> int:
    """Where the value that begins here ends, or `NOT_PLAIN`."""
    first = text[at]
    if first == _QUOTE:
        return _string(text, at, unwanted)
    if first == 116:
        return _word(text, at, 114, 117, 101)  # true
    if first == 110:
        return _word(text, at, 117, 108, 108)  # null
    if first == 102:  # false
        at = _word(text, at, 97, 108, 115)
        return at + 1 if at != NOT_PLAIN and text[at] == 101 else NOT_PLAIN
    return _number(text, at)


@njit_copied
def _word(text: Octets, at: int, second: int, third: int, fourth: int) -> int:
    same = text[at + 1] == second and text[at + 2] == third and text[at + 3] == fourth
    return at + 4 if same else NOT_PLAIN


@njit_copied
def _string(text: Octets, at: int, escapes: bool) -> int:
    """Behind the string that begins here, or `NOT_PLAIN`; with the simple escapes, where these are allowed."""
    if text[at] != _QUOTE:
        return NOT_PLAIN
    at += 1
    while True:
        word = _eight(text, at)
        quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
        special = ((quotes - _ONES) & ~quotes) | ((backslashes - _ONES) & ~backslashes) | ((word - _SPACES) & ~word)
        at += _first(special)
        if not special & _HIGH_BITS:
            continue
        if text[at] == _QUOTE:
            return at + 1
        if text[at] != _BACKSLASH or not escapes:
            return NOT_PLAIN
        escaped = text[at + 1]
        if escaped != _QUOTE and escaped != _BACKSLASH and escaped != 47 and escaped != 110 and escaped != 116:
            return NOT_PLAIN
        at += 2


@njit_copied
def _digits(text: Octets, at: int) -> int:
    """Behind the digits that begin here."""
    while True:
        value = _eight(text, at) ^ _ZEROS  # 0 to 9 of a digit
        others = (value + _FROM_TEN) | value
        at += _first(others)
        if others & _HIGH_BITS:
            return at


@njit_copied
def _number(text: Octets, at: int) -> int:
    """Behind the number that begins here, or `NOT_PLAIN`."""
    start = at
    if text[at] == _MINUS:
        at += 1
    whole = _digits(text, at)
    if whole == at or (text[at] == _ZERO and whole > at + 1):
        return NOT_PLAIN
    at = whole
    if text[at] == _POINT:
        fraction = _digits(text, at + 1)
        if fraction == at + 1:
            return NOT_PLAIN
        at = fraction
    if text[at] == 101 or text[at] == 69:
        at += 1
        if text[at] == _PLUS or text[at] == _MINUS:
            at += 1
        power = _digits(text, at)
        if power == at or power > at + 2:
            return NOT_PLAIN
        at = power
    return at if at - start <= _LONGEST_NUMBER else NOT_PLAIN


@njit_copied
def _place(
    text: Octets, start: int, stop: int, numeric: bool, column: int, row: int, begin: Places, end: Places
) -> bool:
    """Note where a wanted value lies; whether it is of a kind that is wanted there."""
    first = text[start]
    end[column, row] = stop  # so that a null, too, is known to have been there
    if first == 110:
        return True
    if first == _QUOTE:
        begin[column, row] = start + 1
        end[column, row] = stop - 1
        return not numeric
    if first == 116 or first == 102:
        begin[column, row] = start if not numeric else TRUE if first == 116 else FALSE
        return True
    begin[column, row] = start
    return not (first == _MINUS and stop - start == 2 and text[start + 1] == _ZERO)  # minus zero is zero
