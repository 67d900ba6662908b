"""Batches as they are sent: tables of any kind, whole or in two parts, as Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foldaway.errors import ServerError


def table_of(batch: Any) -> pa.Table:
    """Any kind of batch as a table."""
    if hasattr(batch, "__arrow_c_stream__"):
        return pa.table(batch)
    if hasattr(batch, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(batch)])
    return pa.table(batch) if isinstance(batch, dict) else pa.Table.from_pylist(list(batch))


def halves(table: pa.Table, unit: str | None) -> list[pa.Table]:
    """Two parts of a table; if units must come together, with all records of each in the same one."""
    if unit is None or unit not in table.schema.names:
        middle = table.num_rows // 2
        return [table.slice(0, middle), table.slice(middle)]
    units = pc.unique(table[unit])
    if len(units) < 2:
        raise ServerError("all records of a unit must come in one batch, and these are more than the server accepts.")
    first = pc.is_in(table[unit], value_set=units.slice(0, len(units) // 2))
    return [table.filter(first), table.filter(pc.invert(first))]


def arrow(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
