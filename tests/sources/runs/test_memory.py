"""Memory stays flat however large the file."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from foldaway.sources.formats.chunk import ROWS, WantedColumns
from foldaway.sources.formats.files import read

WANTED = WantedColumns(numeric=("y", "x"), text=("unit",))
MIB = 2**20


def table(n: int) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table({"y": rng.normal(size=n), "x": rng.normal(size=n), "unit": [f"user-{i}" for i in range(n)]})


def peak(path: Path) -> tuple[int, int]:
    """The most bytes held by Arrow and by Python while the file is read, and the number of records."""
    most = count = 0
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    for batch in read(path, WANTED):
        assert batch.records.num_rows <= 2 * ROWS
        count += batch.records.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most + python, count


def arrow(data: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, data.schema) as file:
        file.write_table(data, max_chunksize=50_000)


WRITE: dict[str, Callable[[pa.Table, Path], object]] = {
    "groups.parquet": lambda data, path: pq.write_table(data, path, row_group_size=50_000),
    "one_group.parquet": lambda data, path: pq.write_table(data, path, row_group_size=10**9),
    "a.csv": pyarrow.csv.write_csv,
    "a.csv.zst": lambda data, path: pyarrow.csv.write_csv(data, pa.output_stream(path, compression="zstd")),
    "a.ndjson": lambda data, path: pl.DataFrame(data).write_ndjson(path),
    "a.arrow": arrow,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITE)
def test_three_times_the_records_take_no_more_memory(name: str, tmp_path: Path) -> None:
    small, large = tmp_path / f"small_{name}", tmp_path / f"large_{name}"
    WRITE[name](table(240_000), small)
    WRITE[name](table(720_000), large)
    one, three = peak(small), peak(large)
    assert (one[1], three[1]) == (240_000, 720_000)
    assert three[0] < 1.25 * one[0] + MIB
