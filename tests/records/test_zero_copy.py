"""Arrow columns of double precision reach the assembly of blocks where they lie: no copy is made on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.records.check import _Checked
from foldaway.records.columns import columns_of

PLAN = fa.Plan(name="copies", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"], weight="w")
N = 1000


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {"g": ["a", "b"] * (N // 2), "y": rng.normal(size=N), "x": rng.normal(size=N), "w": rng.uniform(1, 2, N)}


GIVEN: dict[str, Callable[[], Any]] = {
    "pyarrow table": lambda: pa.table(columns()),
    "pyarrow batch": lambda: pa.record_batch(columns()),
    "part of a table": lambda: pa.table(columns()).slice(17, 400),
    "polars": lambda: pl.DataFrame(columns()),
}


def addresses(given: Any) -> dict[str, int]:
    """Where the values of each column of double precision begin."""
    table = pa.table(given) if not isinstance(given, pa.RecordBatch) else pa.Table.from_batches([given])
    found = {}
    for name in ("y", "x", "w"):
        (chunk,) = table.column(name).chunks
        found[name] = chunk.buffers()[1].address + 8 * chunk.offset
    return found


def address(values: np.ndarray[Any, Any]) -> int:
    return int(values.__array_interface__["data"][0])


@pytest.mark.parametrize("kind", GIVEN)
def test_columns_of_double_precision_are_not_copied(kind: str) -> None:
    given = GIVEN[kind]()
    arrived, n, _ = columns_of(given, ["g", "y", "x", "w"])
    checked = _Checked(PLAN, arrived, n, text=False)
    (x, _), (y, _) = checked.values
    assert checked.weight is not None
    assert {"x": address(x), "y": address(y), "w": address(checked.weight)} == addresses(given)
    # Nor does the batch copy them before it assembles blocks of a few thousand records.
    batch = checked.batch(None)
    assert batch.weight is not None
    assert address(batch.weight) == addresses(given)["w"]
    np.testing.assert_array_equal(batch.assemble(slice(0, 5))[2], y[:5])


def test_a_column_with_nulls_or_of_another_type_is_copied_once() -> None:
    """So that the test above can fail."""
    for column in (pa.array([1.0, None] * (N // 2)), pa.array(range(N))):
        table = pa.table(columns()).set_column(1, "y", column)
        arrived, n, _ = columns_of(table, ["g", "y", "x", "w"])
        values = _Checked(PLAN, arrived, n, text=False).values[1][0]
        assert address(values) != table.column("y").chunk(0).buffers()[1].address
