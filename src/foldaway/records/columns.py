"""Every kind of tabular input as Arrow columns; only the plan's columns are touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from numpy.typing import NDArray

from foldaway.errors import RecordError

# An Arrow column, or a list of Python objects that Arrow would not take as one type.
Column: TypeAlias = "pa.Array | list[Any]"

_TAKEN = "a pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts"


def columns_of(data: Any, names: Sequence[str]) -> tuple[dict[str, Column], int, int]:
    """The named columns that are there, the number of records, and how many are not records at all."""
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return (*_from_arrow(data, names), 0)
    if isinstance(data, Mapping):
        return (*_from_dict(data, names), 0)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_records(data, names)
    raise RecordError(f"cannot read a batch from {type(data).__name__}; give {_TAKEN}.")


def _from_arrow(data: Any, names: Sequence[str]) -> tuple[dict[str, Column], int]:
    if type(data).__module__.partition(".")[0] == "pandas":
        # Column by column, since one column of mixed objects would make pandas refuse the whole table.
        doubled = [name for name in names if list(data.columns).count(name) > 1]
        _refuse_doubled(doubled)
        return {name: _array(data[name], pandas=True) for name in names if name in data.columns}, len(data)
    table = _table(data)
    _refuse_doubled([name for name in names if table.column_names.count(name) > 1])
    columns = {name: _joined(table.column(name)) for name in names if name in table.column_names}
    return columns, table.num_rows


def _table(data: Any) -> pa.Table:
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        return pa.Table.from_batches([pa.record_batch(data)])
    except (pa.ArrowException, TypeError, ValueError):
        pass
    raise RecordError(f"cannot read this {type(data).__name__} as a table through the Arrow interface.")


def _joined(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def _from_dict(data: Mapping[Any, Any], names: Sequence[str]) -> tuple[dict[str, Column], int]:
    columns: dict[str, Column] = {}
    for name in names:
        if name not in data:
            continue
        values = data[name]
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise RecordError(f"the column {name!r} is not a sequence; for a single record give a list of one dict.")
        columns[name] = _array(values)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise RecordError(f"ragged: the columns have different lengths ({', '.join(map(str, sorted(lengths)))}).")
    return columns, lengths.pop() if lengths else 0


def _from_records(data: Iterable[Any], names: Sequence[str]) -> tuple[dict[str, Column], int, int]:
    given = list(data)
    records = [record for record in given if isinstance(record, Mapping)]
    columns: dict[str, Column] = {}
    for name in names:
        if any(name in record for record in records):
            columns[name] = _array([record.get(name) for record in records])
    return columns, len(records), len(given) - len(records)


def _array(values: Any, pandas: bool = False) -> Column:
    """An Arrow array, or a list where Arrow finds no common type; its errors, which quote values, end here."""
    try:
        array = pa.array(values, from_pandas=pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return list(values)
    return _joined(array) if isinstance(array, pa.ChunkedArray) else array


def _refuse_doubled(names: Sequence[str]) -> None:
    if names:
        raise RecordError(f"the batch has more than one column called {', '.join(map(repr, names))}.")


def as_numpy(column: pa.Array) -> NDArray[Any]:
    """An Arrow column as NumPy, without a copy where the type allows."""
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
