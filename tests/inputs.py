"""One table in every form in which people hold tables: for the tests of what comes in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Columns = Mapping[str, Sequence[Any]]


def records(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def generator(columns: Columns) -> Iterator[dict[str, Any]]:
    yield from records(columns)


def chunks(array: pa.Array, size: int = 5) -> list[pa.Array]:
    """Cut in pieces, an empty one among them."""
    return [array.slice(at, size) for at in range(0, len(array), size)] + [array.slice(0, 0)]


def each(table: pa.Table, change: Callable[[pa.Array], pa.Array]) -> pa.Table:
    return pa.table({name: change(table.column(name).combine_chunks()) for name in table.column_names})


def is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type))


def encoded(array: pa.Array) -> pa.ChunkedArray:
    """Text as a dictionary of its own for each chunk, in which values come in another order each time."""
    if not is_text(array):
        return pa.chunked_array(chunks(array), array.type)
    return pa.chunked_array([pc.dictionary_encode(chunk) for chunk in chunks(array)])


def encoded_oddly(array: pa.Array) -> pa.Array:
    """Text as a dictionary with every entry twice, unused ones, and null both as an index and as an entry."""
    if not is_text(array):
        return array
    values = pc.unique(array).to_pylist()
    entries = [*values, None, "never used", *values]
    places = [[i for i, entry in enumerate(entries) if entry == value] for value in array.to_pylist()]
    chosen = [None if array[row].as_py() is None and row % 2 else at[row % len(at)] for row, at in enumerate(places)]
    return pa.DictionaryArray.from_arrays(pa.array(chosen, pa.uint8()), pa.array(entries, pa.large_string()))


def large(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string()) if is_text(array) else array


def viewed(array: pa.Array) -> pa.Array:
    return array.cast(pa.string_view()) if is_text(array) else array


def sliced(array: pa.Array) -> pa.Array:
    """In the midst of a longer array."""
    other = pa.concat_arrays([array, array.slice(0, 1), array])
    return other.slice(len(array) + 1)


def query(columns: Columns, sql: str = "select * from given") -> Any:
    connection = duckdb.connect()
    connection.register("given", pa.table(dict(columns)))
    return connection.sql(sql)


def result(columns: Columns) -> Any:
    connection = duckdb.connect()
    connection.register("given", pa.table(dict(columns)))
    return connection.execute("select * from given")


def frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame(dict(columns))


def categorical(columns: Columns) -> pd.DataFrame:
    texts = [name for name, values in columns.items() if any(isinstance(value, str) for value in values)]
    return frame(columns).astype(dict.fromkeys(texts, "category"))


def polars_categorical(columns: Columns) -> pl.DataFrame:
    return pl.DataFrame(dict(columns)).with_columns(pl.col(pl.String).cast(pl.Categorical))


# Forms that take a table whose columns each have one type, nulls allowed.
TYPED: dict[str, Callable[[Columns], Any]] = {
    "pandas": frame,
    "pandas nullable": lambda columns: frame(columns).convert_dtypes(),
    "pandas on arrow": lambda columns: frame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categorical": categorical,
    "polars": lambda columns: pl.DataFrame(dict(columns)),
    "polars categorical": polars_categorical,
    "polars in chunks": lambda columns: pl.concat([pl.DataFrame(dict(columns))[at : at + 9] for at in range(0, 99, 9)]),
    "arrow table": lambda columns: pa.table(dict(columns)),
    "arrow record batch": lambda columns: pa.RecordBatch.from_pydict(dict(columns)),
    "arrow reader": lambda columns: pa.table(dict(columns)).to_reader(max_chunksize=7),
    "arrow in chunks": lambda columns: each(pa.table(dict(columns)), lambda a: pa.chunked_array(chunks(a), a.type)),
    "arrow sliced": lambda columns: each(pa.table(dict(columns)), sliced),
    "arrow large text": lambda columns: each(pa.table(dict(columns)), large),
    "arrow text views": lambda columns: each(pa.table(dict(columns)), viewed),
    "arrow dictionaries": lambda columns: each(pa.table(dict(columns)), encoded),
    "arrow odd dictionaries": lambda columns: each(pa.table(dict(columns)), encoded_oddly),
    "arrow run ends": lambda columns: each(pa.table(dict(columns)), pc.run_end_encode),
    "DuckDB relation": query,
    "DuckDB result": result,
    "dict of Series": lambda columns: dict(frame(columns)),
    "dict of arrow arrays": lambda columns: {name: pa.array(values) for name, values in columns.items()},
}

# Forms that take any Python objects, of mixed types too.
OBJECTS: dict[str, Callable[[Columns], Any]] = {
    "dict of lists": dict,
    "dict of tuples": lambda columns: {name: tuple(values) for name, values in columns.items()},
    "dict of object arrays": lambda columns: {name: objects(values) for name, values in columns.items()},
    "list of dicts": records,
    "generator of dicts": generator,
    "pandas objects": lambda columns: pd.DataFrame(
        {name: objects(values) for name, values in columns.items()}, dtype=object
    ),
}

ALL = TYPED | OBJECTS

# Where NaN means missing.
PANDAS = {name for name in ALL if "pandas" in name or "Series" in name}


def objects(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """An array of just these objects, whatever they are."""
    array = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        array[at] = value
    return array
