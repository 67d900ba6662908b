"""Arrow IPC, both as file (also called Feather) and as stream."""

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import ipc

from foldaway.sources.formats.chunk import ROWS, Chunk, Unreadable, WantedColumns, blank, present, slices
from foldaway.sources.formats.streams import Stream

_CONTINUES = b"\xff\xff\xff\xff"
_LARGEST_SCHEMA = 64 * 2**20


def names(stream: Stream) -> list[str]:
    """The names of the columns."""
    if stream.peek(6) == b"ARROW1":
        with ipc.open_file(stream.seekable()) as file:
            return list(file.schema.names)
    return list(_schema(stream).names)


def chunks(stream: Stream, wanted: WantedColumns, *, rows: int = ROWS, part: range | None = None) -> Iterator[Chunk]:
    """The wanted columns, in the types the file gives them, of all record batches or, of the file form, of some.

    The unit of reading is the record batch as it was written: the wanted columns of a file written as one batch
    are in memory all at once. The file form is read from its end, so one that comes from a pipe is first read
    into memory whole.
    """
    opened = _file(stream, wanted, part) if _is_file(stream) else _stream(stream, wanted)
    for records in opened:
        # Arrow takes the writer's word for offsets and UTF-8; a damaged file must not get past here.
        records.validate(full=True)
        yield from slices(Chunk(records), rows)


def parts(stream: Stream) -> list[float]:
    """The share of the file that each record batch has, taken as equal; nothing for the stream form."""
    if not _is_file(stream):
        return []
    with ipc.open_file(stream.seekable()) as file:
        return [1 / file.num_record_batches] * file.num_record_batches


def _is_file(stream: Stream) -> bool:
    return stream.peek(6) == b"ARROW1"


def _file(stream: Stream, wanted: WantedColumns, part: range | None) -> Iterator[pa.RecordBatch]:
    source = stream.seekable()
    with ipc.open_file(source) as file:
        columns = present(file.schema.names, wanted)
    yield blank(columns)
    if columns:
        with ipc.open_file(source, options=_only(columns)) as file:
            for done, i in enumerate(range(file.num_record_batches) if part is None else part, start=1):
                records = file.get_batch(i)
                stream.reached(done / file.num_record_batches)
                yield records.select(list(columns))


def _stream(stream: Stream, wanted: WantedColumns) -> Iterator[pa.RecordBatch]:
    # The reader must be told which columns to skip when it is made, so the schema is looked at before.
    columns = present(_schema(stream).names, wanted)
    yield blank(columns)
    if columns:
        with ipc.open_stream(stream.sequential(), options=_only(columns)) as batches:
            for records in batches:
                yield records.select(list(columns))


def _schema(stream: Stream) -> pa.Schema:
    """The first message of a stream, without taking it."""
    start = stream.peek(8)
    length = int.from_bytes(start[4:], "little")
    if start[:4] != _CONTINUES or not 0 < length <= _LARGEST_SCHEMA:
        raise Unreadable("is not Arrow data, or is damaged; write it again")
    return ipc.read_schema(pa.BufferReader(stream.peek(8 + length)))


def _only(columns: dict[str, int]) -> ipc.IpcReadOptions:
    return ipc.IpcReadOptions(included_fields=sorted(columns.values()))
