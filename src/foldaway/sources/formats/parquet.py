"""Parquet, by row groups and wanted columns."""

from collections.abc import Iterator

import pyarrow.parquet as pq

from foldaway.numerics.threads import cores
from foldaway.sources.formats.chunk import ROWS, Chunk, WantedColumns, blank, present
from foldaway.sources.formats.streams import Stream

_ROWS = 2 * ROWS  # decoding costs less per row, and so does folding
_BUFFER = 2**20  # bytes held per column; without a buffer Arrow loads a row group's whole column, however large it is


def names(stream: Stream) -> list[str]:
    """The names of the columns."""
    with pq.ParquetFile(stream.seekable(), pre_buffer=False, buffer_size=_BUFFER) as file:
        return list(file.schema_arrow.names)


def chunks(stream: Stream, wanted: WantedColumns, *, rows: int = _ROWS, part: range | None = None) -> Iterator[Chunk]:
    """The wanted columns, in the types the file gives them, of all row groups or of some.

    A Parquet file is read from its end, so one that comes from a pipe is first read into memory whole.
    """
    with pq.ParquetFile(stream.seekable(), pre_buffer=False, buffer_size=_BUFFER) as file:
        names = list(present(file.schema_arrow.names, wanted))
        yield Chunk(blank(names))
        done, total = 0, max(file.metadata.num_rows, 1)
        groups = None if part is None else list(part)
        one = file.metadata.row_group(0).num_rows if file.metadata.num_row_groups else 0
        if 0 < one < rows:
            rows = rows // one * one  # a batch from parts of row groups would have to be copied together
        reading = file.iter_batches(rows, row_groups=groups, columns=names, use_threads=cores() > 1)
        for records in reading if names else ():
            # Arrow takes the writer's word for offsets and UTF-8; a damaged file must not get past here.
            records.validate(full=True)
            done += records.num_rows
            stream.reached(min(done / total, 1.0))
            # The reader takes a dot in a name for a path into a struct, so more may come than was asked for.
            yield Chunk(records.select(names))


def parts(stream: Stream) -> list[float]:
    """The share of the file's rows that each row group has."""
    metadata = pq.read_metadata(stream.seekable())
    return [metadata.row_group(i).num_rows / max(metadata.num_rows, 1) for i in range(metadata.num_row_groups)]
