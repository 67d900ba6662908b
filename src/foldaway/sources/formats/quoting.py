"""Where the lines of a CSV file end when quoted cells may hold line ends themselves."""

import numpy as np
from numpy.typing import NDArray

_QUOTE = b'"'


def whole_lines(block: bytes, delimiter: bytes) -> int:
    r"""How many bytes of a block are whole lines; the block must start at the start of a line.

    >>> whole_lines(b'1,"a\nb"\n2,"c\n', b",")
    8
    """
    borders = _borders(block, delimiter)
    # A carriage return at the very end may be half of a line end, so it is left for the next block.
    return _last(block, b"\n", borders, len(block)) or _last(block, b"\r", borders, len(block) - 1)


def first_line(block: bytes, delimiter: bytes) -> int:
    r"""Where the first line of a block ends, its line end included.

    >>> first_line(b'"a\nb",c\r\n1,2\r\n', b",")
    9
    """
    borders = _borders(block, delimiter)
    start = 0
    while ends := [end for mark in (b"\n", b"\r") if (end := block.find(mark, start)) >= 0]:
        end = min(ends)
        before = int(np.searchsorted(borders, end))
        if before % 2 == 0:
            return end + (2 if block.startswith(b"\r\n", end) else 1)
        if before == len(borders):
            break
        start = int(borders[before])
    return len(block)


def is_open(block: bytes, delimiter: bytes) -> bool:
    """Whether a quoted cell begins in the block and does not end in it."""
    return len(_borders(block, delimiter)) % 2 == 1


def _last(block: bytes, mark: bytes, borders: NDArray[np.intp], stop: int) -> int:
    while (end := block.rfind(mark, 0, stop)) >= 0:
        before = int(np.searchsorted(borders, end))
        if before % 2 == 0:
            return end + 1
        stop = int(borders[before - 1])
    return 0


def _borders(block: bytes, delimiter: bytes) -> NDArray[np.intp]:
    """Positions of quotes: a byte is inside a quoted cell if an odd number of them come before it."""
    if _QUOTE not in block:
        return np.empty(0, dtype=np.intp)
    data = np.frombuffer(block, dtype=np.uint8)
    quotes = np.flatnonzero(data == ord(_QUOTE))
    around = np.zeros(256, dtype=bool)
    around[list(delimiter + b"\r\n" + _QUOTE)] = True
    first, last = quotes[0::2], quotes[1::2]
    # In a tidy file every other quote opens a cell (or is the second of a doubled quote), and the ones between
    # close one (or are the first). Only then do odd and even tell inside from outside.
    tidy = around[data[first[first > 0] - 1]].all() and around[data[last[last + 1 < len(data)] + 1]].all()
    return quotes if tidy else _scan(block, delimiter)


def _scan(block: bytes, delimiter: bytes) -> NDArray[np.intp]:
    """The same for untidy files, one by one: a quote that does not begin a cell is a plain character."""
    borders: list[int] = []
    start = block.find(_QUOTE)
    while start >= 0:
        end = start
        if start == 0 or block[start - 1] in delimiter + b"\r\n":
            borders.append(start)
            end = block.find(_QUOTE, start + 1)
            while end >= 0 and block.startswith(_QUOTE, end + 1):
                end = block.find(_QUOTE, end + 2)
            if end < 0:
                break
            borders.append(end)
        start = block.find(_QUOTE, end + 1)
    return np.array(borders, dtype=np.intp)
