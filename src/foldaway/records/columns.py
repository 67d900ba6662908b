"""Every kind of tabular input as columns; only the plan's columns are touched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foldaway.errors import RecordError, did_you_mean, instead_of

# An Arrow column, or a list of Python objects: a short one, or one that Arrow finds no type for.
Column: TypeAlias = "pa.Array | list[Any]"

REFUSED = "The batch was rejected, and none of it was folded"

_TAKEN = "a pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts"

# A list below this length is looked through faster than it is made an Arrow array.
_SHORT = 24

# What Arrow may be given: of other mixtures it makes bytes of text, dates of numbers, or a crash.
_SAFE: tuple[set[type], ...] = ({bool}, {int}, {float}, {int, float}, {str})

# Extension types that only give another name to what is stored.
_TRANSPARENT = ("arrow.bool8", "arrow.uuid")

T = TypeVar("T")


class _NoPandas:
    """Python asks this for every module; for pandas it answers that there is none."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def leave_pandas_out() -> None:
    """Spare a program of foldaway's own the pandas that Arrow loads, where there is one, for the first array it makes.

    It is a fifth of a small run's time. Arrow asks once; whoever imports pandas later gets it.

    Example:
        >>> leave_pandas_out()
        >>> import pandas
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(_NoPandas)


class Given(NamedTuple):
    """What was given as a batch.

    Attributes:
        names: The names of its columns.
        column: Gives the column of a name.
        records: The number of records, where it can be told without a column.
        others: The number of things among the records that are none.
    """

    names: Sequence[str]
    column: Callable[[str], Column]
    records: int = 0
    others: int = 0


def columns_of(data: Any, names: Sequence[str], lackable: Collection[str] = ()) -> tuple[dict[str, Column], int, int]:
    """The named columns, the number of records, and the number of things among them that are none.

    A batch without any column or record is empty, and then no column is missing. Where records come one by one, those
    that they may lack are there even if none of this batch has them.
    """
    is_one = isinstance(data, Mapping | str | bytes | bytearray | memoryview) or attempt(lambda: _speaks_arrow(data))
    if not is_one and isinstance(data, Iterable):  # it comes record by record
        data = list(data)  # not in an attempt: whoever makes records one by one may fail in their own words
    given = attempt(lambda: _given(data, names, lackable))
    if doubled := [name for name in names if given.names.count(name) > 1]:
        raise RecordError(f"{REFUSED}: it has more than one column {_listed(doubled)}.")
    if not given.names and not given.records:
        return {name: [] for name in names}, 0, given.others
    if missing := [name for name in names if name not in given.names]:
        raise RecordError(f"{REFUSED}: it has no column {missing_columns(missing, names, given.names)}")
    columns = attempt(lambda: {name: given.column(name) for name in names})
    lengths = sorted({len(column) for column in columns.values()})
    if len(lengths) > 1:
        raise RecordError(f"{REFUSED}: its columns have different lengths ({', '.join(map(str, lengths))}).")
    return columns, lengths[0], given.others


def attempt(step: Callable[[], T]) -> T:
    """Take a step that reads records; whatever goes wrong in it becomes a `RecordError`.

    The errors of Arrow and others quote the values they stumble over, so only the kind of theirs is told.
    """
    with instead_of(Exception, _unreadable):
        return step()


def _unreadable(error: Exception) -> RecordError | None:
    if isinstance(error, RecordError | MemoryError):
        return None
    return RecordError(f"{REFUSED}: it could not be read ({type(error).__name__}); pass {_TAKEN}.")


def _speaks_arrow(data: Any) -> bool:
    # The last is what DuckDB's execute() returns.
    return any(hasattr(data, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "to_arrow_table"))


def _given(data: Any, names: Sequence[str], lackable: Collection[str]) -> Given:
    # Another thread may be in the middle of importing pandas.
    frames = getattr(sys.modules.get("pandas"), "DataFrame", None)
    if frames is not None and isinstance(data, frames):
        # Column by column, since one column of mixed objects would make pandas refuse the whole table.
        return Given(
            [name for name in data.columns if isinstance(name, str)], lambda name: _array(data[name]), len(data)
        )
    if isinstance(data, Mapping):
        return Given([name for name in data if isinstance(name, str)], lambda name: _sequence(data, name))
    if _speaks_arrow(data):
        table = as_table(data)
        return Given(table.column_names, lambda name: _joined(table.column(name)), table.num_rows)
    if isinstance(data, list):
        return _records(data, names, lackable)
    raise RecordError(f"cannot read a batch from {type(data).__name__}; pass {_TAKEN}.")


def as_table(data: Any) -> pa.Table:
    """What speaks Arrow, as a table."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])  # `pa.table` would import pandas
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    return data.to_arrow_table()


def slices_of(table: pa.Table, rows: int) -> list[pa.Table]:
    """A table in slices of about so many rows, along its chunks: parts of several would have to be copied together.

    Example:
        >>> chunks = pa.chunked_array([[1, 2, 3], [4], [5]])
        >>> [part["x"].to_pylist() for part in slices_of(pa.table({"x": chunks}), 2)]
        [[1, 2], [3], [4], [5]]
    """
    slices, waiting = [], list[pa.RecordBatch]()
    for batch in table.to_batches(max_chunksize=rows):
        waiting.append(batch)
        if 2 * sum(each.num_rows for each in waiting) >= rows:
            slices.append(pa.Table.from_batches(waiting))
            waiting = []
    return slices + ([pa.Table.from_batches(waiting)] if waiting else [])


def _records(given: list[Any], names: Sequence[str], lackable: Collection[str]) -> Given:
    records = [record for record in given if isinstance(record, Mapping)]
    found = [name for name in names if any(name in record for record in records) or (records and name in lackable)]
    others = len(given) - len(records)
    if len(found) < len(names):  # one may be misspelt
        found += [name for record in records[:1] for name in record if isinstance(name, str) and name not in found]
    return Given(found, lambda name: _array([record.get(name) for record in records]), len(records), others)


def _sequence(data: Mapping[str, Any], name: str) -> Column:
    values = data[name]
    if (
        isinstance(values, str | bytes | Mapping | Set)
        or getattr(values, "ndim", 1) != 1
        or not hasattr(values, "__len__")
    ):
        raise RecordError(f"the column {name!r} is not a sequence; for a single record, pass a list of one dict.")
    return _array(values)


def _array(values: Any) -> Column:
    """An Arrow array, or a list of objects that are few or of several types."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _joined(values)
    if not hasattr(values, "dtype") or values.dtype == "object":
        values = _objects(values)
        if len(values) < _SHORT or set(map(type, values)) - {type(None)} not in _SAFE:
            return values
    try:
        array = pa.array(values)
    except Exception:
        array = None
    return _objects(values) if array is None else _joined(array)


def _objects(values: Any) -> list[Any]:
    if not hasattr(values, "isna"):
        return list(values)
    # pandas has many words for null.
    return [None if null else value for value, null in zip(values, values.isna(), strict=True)]


def _joined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array of a plain type."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [_plain(chunk) for chunk in chunks] or [pa.nulls(0)]
    if len(plain) == 1:
        return plain[0]
    if not pa.types.is_dictionary(plain[0].type):
        return pa.concat_arrays(plain)
    # One dictionary after the other: Arrow cannot unify those that hold nulls.
    starts = np.cumsum([0, *(len(chunk.dictionary) for chunk in plain)]).tolist()
    indices = [pc.add(chunk.indices.cast(pa.int64()), start) for chunk, start in zip(plain, starts, strict=False)]
    return pa.DictionaryArray.from_arrays(
        pa.concat_arrays(indices), pa.concat_arrays([chunk.dictionary for chunk in plain])
    )


def _plain(array: pa.Array) -> pa.Array:
    """The array in a type that all of Arrow's functions take."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, _plain(array.dictionary))
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    return array.storage if getattr(kind, "extension_name", "") in _TRANSPARENT else array


def as_numpy(column: pa.Array) -> NDArray[Any]:
    """An Arrow column as NumPy, without a copy where the type allows."""
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def missing_columns(missing: Sequence[str], wanted: Sequence[str], given: Sequence[str]) -> str:
    """The end of a sentence about columns that are not there, with the nearest one that is.

    If none of the wanted columns is there, nothing is repeated: the first line may be a record, and no names.

    Example:
        >>> missing_columns(["revenu"], ["group", "revenu"], ["group", "revenue"])
        "'revenu'; did you mean 'revenue'?"
        >>> missing_columns(["group", "revenu"], ["group", "revenu"], ["a", "revenue"])
        "'group', 'revenu'."
    """
    others = [name for name in given if name not in wanted] if len(missing) < len(wanted) else []
    ends = [did_you_mean(name, others) for name in missing]
    return _listed(missing) + next((end for end in ends if end != "."), ".")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
