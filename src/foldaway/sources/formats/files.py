"""One function for every format."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from foldaway.errors import RecordError, SourceError, instead_of
from foldaway.keeping.disk import trouble
from foldaway.keeping.saved import is_saved
from foldaway.records.columns import missing_columns
from foldaway.sources.formats import arrow, delimited, ndjson, parquet
from foldaway.sources.formats.chunk import Chunk, Unreadable, WantedColumns, join
from foldaway.sources.formats.lines import BYTE_ORDER_MARK
from foldaway.sources.formats.paths import Stdin, size
from foldaway.sources.formats.streams import Stream

FORMATS: dict[str, Any] = {"csv": delimited, "tsv": delimited, "parquet": parquet, "arrow": arrow, "ndjson": ndjson}
"""The formats by name, each a module with `chunks` from a stream and the wanted columns.

It has `names` of the columns, unless every line has its own; and `parts`, the share that each part has of the file, if
a part can be read by itself."""

_SUFFIXES = {
    "csv": (".csv",),
    "tsv": (".tsv",),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".ipc", ".feather"),
    "ndjson": (".ndjson", ".jsonl", ".json"),
}
_DELIMITERS = {"csv": b",;\t|", "tsv": b"\t,;|"}
_PACKED = (".gz", ".zst", ".bz2")
# An address, a date, a telephone number, an amount: no letters but those of an address, and a digit.
_VALUE = re.compile(r".*\S@\S.*|[^A-Za-z]*\d[^A-Za-z]*")
_DAMAGED = "cannot be read as {} ({}): it is damaged, cut short or of another format; write it again"


class ReadOptions(msgspec.Struct, frozen=True):
    """How files are read.

    Attributes:
        format: One of `FORMATS`; by default the file's suffix tells, and the first bytes where it does not.
        delimiter: What stands between two cells of a CSV file, if its first line does not tell.
    """

    format: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        format, delimiter = self.format, self.delimiter
        if format is not None and format not in FORMATS:
            raise SourceError(f"there is no format {format!r}; use one of {', '.join(FORMATS)}")
        if delimiter is None:
            return
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise SourceError("a delimiter is one character, such as ; or a tab, and no quote or line end")
        if format is not None and format not in _DELIMITERS:
            raise SourceError(f"a delimiter is for CSV, not for {format}")

    def for_cells(self, kind: str) -> dict[str, Any]:
        """What may stand between two cells, for formats that have such a thing."""
        if kind not in _DELIMITERS:
            return {}
        return {"delimiters": _DELIMITERS[kind] if self.delimiter is None else self.delimiter.encode()}


_AS_USUAL = ReadOptions()


def read(
    path: Path | Stdin,
    wanted: WantedColumns,
    options: ReadOptions = _AS_USUAL,
    *,
    whole: bool = False,
    part: range | None = None,
    progress: Callable[[int], None] = lambda used: None,
) -> Iterator[Chunk]:
    r"""Read the wanted columns of a file, chunk by chunk.

    At least one chunk comes, without rows if the file has none. Memory does not grow with the file, except that
    Parquet and Arrow's file form need all of it when they come from a pipe. A file compressed by gzip, zstd or
    bzip2 is known by its first bytes, whatever its name.

    Args:
        path: A file, or standard input.
        wanted: The columns to read. One that the file does not have is absent from the chunks.
        options: How to read it.
        whole: Give the file as exactly one chunk.
        part: Which of the file's `parts` to read, if not all.
        progress: Called after each chunk with the number of the file's bytes used so far.

    Raises:
        SourceError: The file is not there, not what it should be, damaged or cut short.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "trial.csv")
        ...     _ = file.write_text("id,arm,age\n007,control,31\n008,treatment\n009,treatment,old\n")
        ...     chunks = list(read(file, WantedColumns(numeric=("age",), text=("arm", "id")), whole=True))
        >>> chunks[0].records.to_pydict()
        {'age': ['31', 'old'], 'arm': ['control', 'treatment'], 'id': ['007', '009']}
        >>> chunks[0].ragged
        1
    """
    with _opened(path) as stream:
        kind = options.format or _format(stream)
        settings = options.for_cells(kind) | ({} if part is None else {"part": part})
        chunks = FORMATS[kind].chunks(stream, wanted, **settings)
        shown = _shown(chunks, stream, kind, progress, to_the_end=part is None)
        if not whole:
            yield from shown
            return
        parts = list(shown)
        with _in_our_words(path, kind):
            chunk = join(parts)
        yield chunk


def parts(path: Path, format: str | None = None) -> list[int]:
    """The parts of a file that can be read by themselves, as the bytes of each: Parquet's row groups, Arrow's batches.

    A file of another format, or one that is compressed as a whole, has a single part. One that cannot be read has a
    single part as well: whoever reads it will say what is wrong.

    Raises:
        SourceError: The file is not there.
    """
    whole = [size(path) or 0]
    try:
        with Stream(path) as stream:
            kind = format or _format(stream)
            shares = FORMATS[kind].parts(stream) if hasattr(FORMATS[kind], "parts") and not stream.packed else []
    except Exception:
        return whole
    return [int(share * whole[0]) for share in shares] or whole


def column_names(path: Path, delimiter: str | None = None) -> list[str]:
    r"""The names of a file's columns; none for newline-delimited JSON, where every line has its own.

    A file without a header line is refused, so that no record's values are taken for names and shown: the first record
    then stands where the names should be, or once did, in a Parquet file that was made from such a one.

    Raises:
        SourceError: The file cannot be read, or its first line names no columns.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "trial.csv")
        ...     _ = file.write_text("id,arm,age\n007,control,31\n")
        ...     column_names(file)
        ['id', 'arm', 'age']
    """
    options = ReadOptions(delimiter=delimiter)
    with _opened(path) as stream:
        kind = _format(stream)
        with _in_our_words(path, kind):
            names = [] if kind == "ndjson" else FORMATS[kind].names(stream, **options.for_cells(kind))
    unique = tuple(name for name, times in Counter(names).items() if times == 1)
    first = next(read(path, WantedColumns((), unique), options))
    with _in_our_words(path, kind):
        for position, name in enumerate(names, start=1):
            if (what := _value_in_place_of(name, first.records)) is not None:
                raise Unreadable(
                    f"has {what} where the name of column {position} of {len(names)} should be: its first line is a "
                    "record; add one that names the columns"
                )
    return names


def _value_in_place_of(name: str, records: pa.RecordBatch) -> str | None:
    """What stands where a column's name should be, unless it is a name.

    A file without a header line has a record in its place. Its arm, at the latest, comes again further down.
    """
    with suppress(ValueError):
        float(name)
        return "a number"
    if _VALUE.fullmatch(name):
        return "what looks like a value"
    column = records.column(name) if name in records.schema.names else pa.nulls(0)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return "a value of that very column" if is_text and pc.any(pc.equal(column, name)).as_py() else None


def require_wanted(path: Path | Stdin, wanted: WantedColumns, chunk: Chunk, delimiter: str | None = None) -> None:
    """Refuse a file without one of the wanted columns.

    Raises:
        RecordError: It has not all of them.
    """
    missing = [name for name in wanted.names if name not in chunk.records.schema.names]
    if not missing:
        return
    names: list[str] = []  # all of the file's, where it can be read again
    with suppress(SourceError):
        names = column_names(path, delimiter) if isinstance(path, Path) and size(path) is not None else names
    hint = (
        " Does its first line name the columns? If it does, say with --delimiter what separates them."
        if len(missing) == len(wanted.names) > 1
        else ""
    )
    listed = missing_columns(missing, wanted.names, names)
    raise RecordError(f"nothing of {path} was folded: it has no column {listed}{hint}")


def _opened(source: Path | Stdin) -> Stream:
    with _in_our_words(source):
        return Stream(source)


def _in_our_words(source: Path | Stdin, kind: str = "data") -> instead_of:
    """Whatever goes wrong becomes a `SourceError`: Arrow's errors quote the cells they stumble over."""
    return instead_of(Exception, partial(_source_error, source, kind))


def _source_error(source: Path | Stdin, kind: str, error: Exception) -> SourceError | None:
    match error:
        case SourceError():
            return None
        case Unreadable():
            words = str(error)
        case MemoryError():
            words = "asks for more memory than there is; it is damaged, or should be written in smaller batches"
        case OSError() if error.errno is not None:  # without a number it is Arrow's, of a damaged file
            words = trouble(error)
        case _:  # of an unforeseen error only the kind is told
            words = _DAMAGED.format(kind, type(error).__name__)
    return SourceError(f"{source} {words}")


def _shown(
    chunks: Iterator[Chunk], stream: Stream, kind: str, progress: Callable[[int], None], *, to_the_end: bool
) -> Iterator[Chunk]:
    """The chunks that say something; if there are none, the last one, which at least shows the columns."""
    blank, some = None, False
    while True:
        with _in_our_words(stream.path, kind):
            chunk = next(chunks, None)
        if chunk is None:
            break
        if chunk.records.num_rows or chunk.ragged:
            some = True
            yield chunk
        else:
            blank = chunk
        progress(stream.consumed)
    if to_the_end:
        # What the last chunk left unread (an index, an end mark) counts as used as well.
        progress(max(stream.size or 0, stream.consumed))
    if blank is not None and not some:
        yield blank


def _format(stream: Stream) -> str:
    """The format by suffix, or else by the first bytes."""
    if isinstance(stream.path, Path):
        named = [suffix for suffix in map(str.lower, stream.path.suffixes) if suffix not in _PACKED]
        for kind, suffixes in _SUFFIXES.items():
            if named and named[-1] in suffixes:
                return kind
    with _in_our_words(stream.path):
        head = stream.peek(4096)
        if head.startswith(b"PK\x03\x04"):
            raise Unreadable("is a zip archive or a spreadsheet; unpack it, or save it as CSV")
        if is_saved(head):
            raise Unreadable("is a saved state, not a file of records; to go on from it, give it as --resume")
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text.startswith(b"{") or ndjson.ARRAY.match(text):
        return "ndjson"
    return "csv"
