"""CSV and TSV.

Blocks of whole lines go through Arrow's reader with every wanted cell as text, so no cell can stop the read;
the numeric columns are then converted, and one with a cell that is not a number stays text for that block. Text
is exactly what was written: 007 stays "007". An empty cell is null, and so are NA, NaN and null; in a text column
only if they stand without quotes, since programs that quote text (R, for one) write a missing value bare.

The header line tells what separates cells. Where commas do not, they may mark decimals.
"""

import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from foldaway.sources.formats.chunk import Chunk, Unreadable, WantedColumns, as_numbers, blank, present, slices
from foldaway.sources.formats.decimal_commas import DecimalCommas
from foldaway.sources.formats.lines import BLOCK, BYTE_ORDER_MARK, LineNumbers, blocks
from foldaway.sources.formats.streams import Stream

_NOT_UTF8 = "is not UTF-8; save it as UTF-8, for instance with `iconv -f CP1252 -t UTF-8`"
_QUOTE = b'"'
_NULLS = ["", "NA", "NaN", "null"]
_HEAD = 64 * 2**10  # bytes in which the header line should end


def chunks(stream: Stream, wanted: WantedColumns, *, delimiters: bytes = b",", block: int = BLOCK) -> Iterator[Chunk]:
    """The wanted columns of a file with a header line, which one of the delimiters separates.

    Numeric columns come as float64 (true and false as 1 and 0), or as string with the blanks around the cells
    removed in blocks where some cell is not a number; text columns come as string. Lines with too few or too
    many cells count as ragged. A wanted cell that is not UTF-8 stops the read: the file is in another encoding, and
    the lines of it that happen to be ASCII would be a biased choice.
    """
    delimiter = _delimiter(stream, delimiters)
    commas = None if delimiter == b"," else DecimalCommas()
    lines = blocks(stream, lambda data: whole_lines(data, delimiter), block)
    numbers = LineNumbers()
    header, rest = _header(lines, delimiter, numbers)
    columns = present(header, wanted)
    if not columns:
        _require_several(header, delimiter)
        yield Chunk(blank([]))
        return
    for data in chain([rest], lines):
        if not stream.peek(1) and is_open(data, delimiter):
            raise Unreadable("ends inside a quoted cell; the file is cut short, or a quote is never closed")
        # Arrow hands a ragged line to us as text, which fails where it is not UTF-8. Every byte is Latin-1.
        utf8 = _is_utf8(data)
        lines_read = data if utf8 else data.decode("latin-1").encode()
        cells, ragged = _cells(lines_read, delimiter, len(header), list(columns.values()))
        first = numbers.of(data, len(cells[0]) + ragged)
        wrong = first + _first_ragged(lines_read, delimiter, len(header)) if ragged and first is not None else None
        if not utf8:
            cells = _restored(cells)
        arrays = [
            _text(column) if name in wanted.text else _numbers(column, name, commas, name in wanted.either)
            for name, column in zip(columns, cells, strict=True)
        ]
        records = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        yield from slices(Chunk(records, ragged, None if ragged else first, wrong))


def names(stream: Stream, *, delimiters: bytes = b",") -> list[str]:
    """The names in the header line."""
    delimiter = _delimiter(stream, delimiters)
    header, _ = _header(blocks(stream, lambda data: whole_lines(data, delimiter)), delimiter, LineNumbers())
    _require_several(header, delimiter)
    return header


def _delimiter(stream: Stream, delimiters: bytes) -> bytes:
    """The one that cuts the header line into most names; of several, the first."""
    head = stream.peek(_HEAD).removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n")
    return max(
        (bytes([each]) for each in delimiters), key=lambda each: len(_names(head[: first_line(head, each)], each))
    )


def _names(line: bytes, delimiter: bytes) -> list[str]:
    reader = csv.reader(io.StringIO(line.decode(errors="replace"), newline=""), delimiter=delimiter.decode())
    return next(reader, [])


def _require_several(header: list[str], delimiter: bytes) -> None:
    """Refuse a first line that another delimiter than the one that was asked for would cut."""
    for other, called in {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}.items():
        if len(header) == 1 and other in header[0] and other != delimiter.decode():
            raise Unreadable(f"is separated by {called}, as its first line shows: leave out --delimiter")


def _header(lines: Iterator[bytes], delimiter: bytes, numbers: LineNumbers) -> tuple[list[str], bytes]:
    """The names in the first line that is not blank, and what follows that line in its block."""
    for block in lines:
        data = block
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise Unreadable("is UTF-16; save it as UTF-8, for instance with `iconv -f UTF-16 -t UTF-8`")
        data = data.lstrip(b"\r\n")
        if not data:
            numbers.of(block, 0)
        else:
            end = first_line(data, delimiter)
            header = data[:end].decode(errors="replace")
            if "\0" in header:
                raise Unreadable("is not text; check its format and its suffix")
            if "\ufffd" in header:
                raise Unreadable(_NOT_UTF8)
            numbers.of(block[: len(block) - len(data) + end], 0)
            return _names(data[:end], delimiter), data[end:]
    raise Unreadable("is empty; the first line must name the columns")


def _cells(data: bytes, delimiter: bytes, width: int, positions: list[int]) -> tuple[list[pa.Array], int]:
    """The cells at some positions of every line, as text, and how many lines are not `width` cells wide."""
    ragged = 0

    def skip(_: object) -> str:
        nonlocal ragged
        ragged += 1
        return "skip"

    names = [str(position) for position in positions]
    table = arrow_csv.read_csv(
        pa.BufferReader(data or b"\n"),  # Arrow refuses a block of no bytes, but reads one of no lines
        # Columns go by position: a file may have two columns of one name among those that nobody wants.
        arrow_csv.ReadOptions(column_names=[str(i) for i in range(width)], block_size=len(data) + 1),
        arrow_csv.ParseOptions(delimiter=delimiter.decode(), newlines_in_values=True, invalid_row_handler=skip),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
            check_utf8=False,  # was done for the block
            null_values=_NULLS,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns], ragged


def _first_ragged(data: bytes, delimiter: bytes, width: int) -> int:
    """Which line is the first that is not `width` cells wide, from 0: Arrow counts lines in one thread only."""
    found: list[int] = []

    def note(row: arrow_csv.InvalidRow) -> str:
        found.append(row.number)
        return "skip"

    arrow_csv.read_csv(
        pa.BufferReader(data),
        arrow_csv.ReadOptions(column_names=[str(i) for i in range(width)], block_size=len(data) + 1, use_threads=False),
        arrow_csv.ParseOptions(delimiter=delimiter.decode(), newlines_in_values=True, invalid_row_handler=note),
        arrow_csv.ConvertOptions(column_types={"0": pa.binary()}, include_columns=["0"]),
    )
    return found[0] - 1


def _restored(cells: list[pa.Array]) -> list[pa.Array]:
    """Cells that were read as Latin-1, as the UTF-8 they are."""
    with suppress(UnicodeDecodeError):
        return [
            pa.array(
                [None if cell is None else cell.encode("latin-1").decode() for cell in column.to_pylist()], pa.string()
            )
            for column in cells
        ]
    raise Unreadable(_NOT_UTF8)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(cells: pa.Array) -> pa.Array:
    """An empty cell in quotes is as empty as one without."""
    return pc.if_else(pc.equal(cells, ""), None, cells)


def _nulled(cells: pa.Array) -> pa.Array:
    """In a numeric column, a word for nothing is null even in quotes."""
    return pc.if_else(pc.is_in(cells, pa.array(_NULLS)), None, cells)


def _numbers(cells: pa.Array, column: str, commas: DecimalCommas | None, either: bool) -> pa.Array:
    """A column's cells as numbers if all of them are, else as text; in one that may be either, true is no number."""
    cells = _nulled(cells)
    # 1.250 is a number, but another one where commas are known to be decimal.
    numbers = None if commas is not None and commas.known(column) else as_numbers(cells)
    if numbers is None:
        cells = _nulled(pc.utf8_trim_whitespace(cells))
        if commas is not None:
            cells = commas.as_points(column, cells)
        for word, digit in () if either else (("true", "1"), ("false", "0")):
            cells = pc.if_else(pc.equal(pc.utf8_lower(cells), word), digit, cells)
        numbers = as_numbers(cells)
    return cells if numbers is None else numbers


# Where lines end when quoted cells may hold line ends themselves.


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
