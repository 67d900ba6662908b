"""Arrow IPC, both as file (also called Feather) and as stream, and as a stranger's stream in memory."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc

from foldaway.sources.formats.arrow_claims import check_claims
from foldaway.sources.formats.chunk import ROWS, Chunk, Unreadable, WantedColumns, blank, present, slices, too_large
from foldaway.sources.formats.streams import Stream

_CONTINUES = b"\xff\xff\xff\xff"
_LARGEST_SCHEMA = 64 * 2**20


def names(stream: Stream) -> list[str]:
    """The names of the columns."""
    if _is_file(stream):
        with ipc.open_file(stream.seekable()) as file:
            return list(file.schema.names)
    return list(_schema(stream).names)


def chunks(stream: Stream, wanted: WantedColumns, *, rows: int = ROWS, part: range | None = None) -> Iterator[Chunk]:
    """The wanted columns, in the types the file gives them, of all record batches or, of the file form, of some.

    The unit of reading is the record batch as it was written: the wanted columns of a file written as one batch
    are in memory all at once. The file form is read from its end, so one that comes from a pipe is first read
    into memory whole.
    """
    for records in _file(stream, wanted, part) if _is_file(stream) else _stream(stream, wanted):
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


def read_arrow(body: bytes | bytearray, wanted: WantedColumns, most_records: int, most_bytes: int) -> pa.Table:
    """The wanted columns of a stranger's stream; their memory is the body's own where it is not compressed.

    Raises:
        TooLarge: It holds more than it may.
        Unreadable: It is not a whole Arrow stream, or a wanted column stands in it twice, or none does.
        pa.ArrowException: Arrow finds fault with it.
    """
    with memoryview(body) as stream:
        check_claims(stream, most_records, most_bytes)
    source = pa.py_buffer(body)
    columns = present(ipc.read_schema(pa.BufferReader(source)).names, wanted)
    if not columns:
        raise Unreadable("has none of the plan's columns")
    batches = _batches(source, columns)
    # No table is made from the schema alone: a damaged one can have a type with which Arrow ends the process.
    table = pa.Table.from_batches(batches or [blank(columns)])
    for column in table.columns:
        if sum(_spread(chunk) for chunk in column.chunks) > most_bytes:
            raise too_large(f"{most_bytes:,} bytes of text in a column")
    return table


def _batches(source: pa.Buffer, columns: dict[str, int]) -> list[pa.RecordBatch]:
    # Not on Arrow's own threads: what they leave on their stacks is out of reach.
    options = ipc.IpcReadOptions(included_fields=sorted(columns.values()), use_threads=False)
    batches = []
    with ipc.open_stream(pa.BufferReader(source), options=options) as reader:
        for records in reader:
            # Arrow takes the writer's word for offsets, indices and UTF-8.
            records.validate(full=True)
            batches.append(records.select(list(columns)))
    return batches


def _spread(array: pa.Array) -> int:
    """Bytes of text in the array when written out: a dictionary, runs and views can name one long text often."""
    types = pa.types
    named_often = (types.is_dictionary, types.is_run_end_encoded, types.is_string_view, types.is_binary_view)
    return int(_widths(array).sum()) if any(is_kind(array.type) for is_kind in named_often) else 0


def _widths(array: pa.Array) -> NDArray[np.int64]:
    """The bytes of text in each of the array's values."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        index: NDArray[np.int64] = pc.fill_null(array.indices.cast(pa.int64()), -1).to_numpy()
        return np.append(_widths(array.dictionary), 0)[index]
    if pa.types.is_run_end_encoded(kind):
        # The last run may end anywhere after the array does.
        ends: NDArray[np.int64] = array.run_ends.to_numpy().astype(np.int64).clip(max=array.offset + len(array))
        return np.repeat(_widths(array.values), np.diff(ends, prepend=0))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _view_widths(array)
    if not _has_text(kind):
        return np.zeros(len(array), dtype=np.int64)
    widths: NDArray[np.int64] = pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)
    return widths


def _view_widths(array: pa.Array) -> NDArray[np.int64]:
    # A view is 16 bytes, of which the first four are the text's length.
    views = np.frombuffer(array.buffers()[1], dtype=np.int32, count=4 * (array.offset + len(array)))
    widths = views[4 * array.offset :: 4].astype(np.int64)
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), widths, 0)


def _has_text(kind: pa.DataType) -> bool:
    kinds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    )
    return any(is_kind(kind) for is_kind in kinds)
