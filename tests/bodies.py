"""Records as the bodies and messages that senders write."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

Rows = list[dict[str, Any]]


def as_arrow(records: Rows | pa.Table, chunk: int | None = None, **options: Any) -> bytes:
    given = pa.Table.from_pylist(records) if isinstance(records, list) else records
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(given, max_chunksize=chunk)
    return bytes(sink.getvalue())


def as_ndjson(records: Rows | pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in _rows(records)).encode()


def as_json(records: Any) -> bytes:
    return json.dumps(_rows(records)).encode()


def _rows(records: Any) -> Any:
    return records.to_pylist() if isinstance(records, pa.Table) else records


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))
