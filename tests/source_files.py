"""One table in every format, and one form in which what comes back can be compared."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bodies import Rows, as_ndjson, zstd
from foldaway.sources.formats.chunk import Chunk, WantedColumns

WANTED = WantedColumns(numeric=("y", "x"), text=("arm", "unit"))
SCHEMA = pa.schema([("extra", pa.string()), ("y", pa.float64()), ("arm", pa.string())])
SCHEMA = SCHEMA.append(pa.field("x", pa.float64())).append(pa.field("unit", pa.string()))


def rows(n: int) -> Rows:
    return [
        {"extra": "-", "y": i / 4, "arm": "ab"[i % 2], "x": None if i % 7 == 3 else -i * 1e3, "unit": f"{i:05d}"}
        for i in range(n)
    ]


def as_csv(data: Rows, delimiter: str = ",", end: str = "\n") -> bytes:
    """Text in quotes, numbers bare, nothing for null."""

    def cell(value: Any) -> str:
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return "" if value is None else repr(value)

    lines = [[cell(row[name]) for name in SCHEMA.names] for row in data]
    return "".join(delimiter.join(line) + end for line in [SCHEMA.names, *lines]).encode()


def as_parquet(data: Rows, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(data, SCHEMA), sink, **options)
    return bytes(sink.getvalue())


def as_arrow(data: Rows, writer: Callable[..., Any] = pa.ipc.new_file, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with writer(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(pa.Table.from_pylist(data, SCHEMA), max_chunksize=17)
    return bytes(sink.getvalue())


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    "a.csv": as_csv,
    "crlf.csv": partial(as_csv, end="\r\n"),
    "mac.csv": partial(as_csv, end="\r"),
    "a.tsv": partial(as_csv, delimiter="\t"),
    "a.csv.gz": lambda data: gzip.compress(as_csv(data)),
    "a.csv.zst": lambda data: zstd(as_csv(data)),
    "a.csv.bz2": lambda data: bz2.compress(as_csv(data)),
    "bom.csv": lambda data: b"\xef\xbb\xbf" + as_csv(data),
    "a.ndjson": as_ndjson,
    "a.jsonl": as_ndjson,
    "a.json": lambda data: as_ndjson(data).replace(b"\n", b"\r\n"),
    "a.ndjson.gz": lambda data: gzip.compress(as_ndjson(data)),
    "a.ndjson.zst": lambda data: zstd(as_ndjson(data)),
    "a.parquet": as_parquet,
    "a.pq": partial(as_parquet, row_group_size=11, compression="zstd"),
    "a.arrow": as_arrow,
    "a.ipc": partial(as_arrow, writer=pa.ipc.new_stream),
    "a.feather": partial(as_arrow, compression="zstd"),
}
"""By file name, how to write a table."""


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def cells(batches: Iterable[Chunk], wanted: WantedColumns = WANTED) -> tuple[dict[str, list[Any]], int]:
    """All values that came, and the number of ragged lines.

    A numeric column may come as numbers or, where a cell is none, as text; here text that is a number is that number.
    """
    found: dict[str, list[Any]] = {}
    ragged = 0
    for batch in batches:
        ragged += batch.ragged
        for name, column in batch.records.to_pydict().items():
            found.setdefault(name, []).extend(column if name in wanted.text else map(_number, column))
    return found, ragged


def _number(value: Any) -> Any:
    try:
        number = pa.scalar(value).cast(pa.float64()).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return value
    return "NaN" if number != number else number
