"""Laws that hold for every format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bodies import Rows
from foldaway.sources.formats.chunk import WantedColumns
from foldaway.sources.formats.files import ReadOptions, read
from foldaway.sources.formats.paths import Stdin, size
from sizes import mostly_slow
from source_files import SCHEMA, WANTED, WRITERS, cells, put, rows

# CSV cannot tell empty text from no text, so there is none here.
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    st.sampled_from(["NA", "null", "007", '"', 'a"b', "a,b", "a\nb", "a\r\nb", "\t", " x ", "-0", "é", "🧪", "true"]),
    st.none(),
)
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53).map(float), st.none()
)
tables = st.lists(
    st.fixed_dictionaries({"extra": texts, "y": numbers, "arm": texts, "x": numbers, "unit": texts}), max_size=30
)


def expected(data: Rows, wanted: WantedColumns = WANTED) -> dict[str, list[Any]]:
    return {name: [row[name] for row in data] for name in wanted.names}


@settings(max_examples=25, deadline=None)
@given(data=tables)
def test_every_format_gives_the_table_that_was_written(data: Rows, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("law")
    for name, write in WRITERS.items():
        found, ragged = cells(read(put(folder, name, write(data)), WANTED))
        assert (found, ragged) == (expected(data), 0), name


@pytest.mark.parametrize("name", WRITERS)
def test_whole_is_one_batch_and_equals_the_parts(name: str, tmp_path: Path) -> None:
    data = rows(100)
    path = put(tmp_path, name, WRITERS[name](data))
    whole = list(read(path, WANTED, whole=True))
    assert len(whole) == 1
    assert cells(whole) == cells(read(path, WANTED)) == (expected(data), 0)


@pytest.mark.parametrize("name", WRITERS)
def test_only_wanted_columns_come_in_the_order_wanted(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, name, WRITERS[name](rows(40)))
    wanted = WantedColumns(numeric=("x",), text=("unit", "arm"))
    for batch in read(path, wanted):
        assert batch.records.schema.names == ["x", "unit", "arm"]


@pytest.mark.parametrize("name", [name for name in WRITERS if "json" not in name])
@pytest.mark.parametrize("n", [0, 20])
def test_a_column_the_file_does_not_have_is_absent(name: str, n: int, tmp_path: Path) -> None:
    path = put(tmp_path, name, WRITERS[name](rows(n)))
    for batch in read(path, WantedColumns(numeric=("y", "nowhere"), text=())):
        assert batch.records.schema.names == ["y"]
    (batch,) = read(path, WantedColumns(numeric=("nowhere",), text=()))
    assert batch.records.schema.names == []


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("whole", [False, True])
def test_a_file_without_records_gives_one_batch_with_its_columns(name: str, whole: bool, tmp_path: Path) -> None:
    path = put(tmp_path, name, WRITERS[name]([]))
    (batch,) = read(path, WANTED, whole=whole)
    assert batch.records.schema.names == list(WANTED.names)
    assert batch.records.num_rows == batch.ragged == 0


@pytest.mark.parametrize("name", WRITERS)
def test_progress_rises_to_the_size_of_the_file(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, name, WRITERS[name](rows(500)))
    told: list[int] = []
    for _ in read(path, WANTED, progress=told.append):
        pass
    assert told == sorted(told)
    assert told[-1] == size(path) == path.stat().st_size


@pytest.mark.parametrize("name", WRITERS)
def test_a_reader_that_is_left_early_closes_its_file(
    name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    batches = read(put(tmp_path, name, WRITERS[name](rows(500))), WANTED)
    next(batches)
    del batches
    assert not recwarn


@pytest.mark.parametrize("name", WRITERS)
def test_the_first_bytes_tell_the_format_where_the_name_does_not(name: str, tmp_path: Path) -> None:
    data = rows(30)
    assert cells(read(put(tmp_path, "data", WRITERS[name](data)), WANTED)) == (expected(data), 0)


def test_a_given_format_goes_before_the_name(tmp_path: Path) -> None:
    data = rows(30)
    path = put(tmp_path, "a.csv", WRITERS["a.parquet"](data))
    assert cells(read(path, WANTED, ReadOptions("parquet"))) == (expected(data), 0)


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from source_files import WANTED, cells
from foldaway.sources.formats.files import ReadOptions, read
from foldaway.sources.formats.paths import Stdin
told = []
print(json.dumps(cells(read(Stdin(), WANTED, ReadOptions(sys.argv[2] or None), progress=told.append))))
print(told[-1])
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    mostly_slow(
        [("a.csv", ""), ("a.csv.gz", "csv"), ("a.tsv", "tsv"), ("a.ndjson.gz", ""), ("a.parquet", ""), ("a.ipc", "")],
        ("a.csv.gz", "csv"),
        ("a.parquet", ""),
    ),
)
def test_standard_input_is_read_from_a_pipe(name: str, kind: str) -> None:
    data = rows(3000)
    written = WRITERS[name](data)
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[2]), kind]
    done = subprocess.run(command, input=written, capture_output=True, check=True)
    found, told = done.stdout.decode().splitlines()
    assert json.loads(found) == [expected(data), 0]
    assert int(told) == len(written)


def test_a_pipe_with_a_name_is_read_like_standard_input(tmp_path: Path) -> None:
    data = rows(50)
    for name in ("a.csv", "a.parquet"):
        pipe = tmp_path / name
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(WRITERS[name](data),))
        writer.start()
        assert cells(read(pipe, WANTED)) == (expected(data), 0)
        writer.join()


def test_standard_input_has_no_size_and_a_name() -> None:
    assert size(Stdin()) is None
    assert str(Stdin()) == "standard input"


def _others(data: pa.Table, folder: Path) -> None:
    """The same table as other people's programs write it."""
    frame, polar = data.to_pandas(), pl.from_arrow(data)
    assert isinstance(polar, pl.DataFrame)
    frame.to_csv(folder / "pandas.csv", index=False)
    frame.to_csv(folder / "pandas.csv.gz", index=False)
    frame.to_csv(folder / "pandas.csv.bz2", index=False)
    frame.to_parquet(folder / "pandas.parquet")
    frame.to_feather(folder / "pandas.feather")
    frame.to_json(folder / "pandas.jsonl", orient="records", lines=True)
    polar.write_csv(folder / "polars.csv")
    polar.write_parquet(folder / "polars.parquet")
    polar.write_ipc(folder / "polars.arrow", compression="zstd")
    polar.write_ipc_stream(folder / "polars.ipc")
    polar.write_ndjson(folder / "polars.ndjson")
    base = duckdb.connect()
    base.register("data", data)
    base.execute(f"COPY data TO '{folder}/duckdb.csv'")
    base.execute(f"COPY data TO '{folder}/duckdb.tsv' (DELIMITER '\t')")
    base.execute(f"COPY data TO '{folder}/duckdb.parquet'")
    base.execute(f"COPY data TO '{folder}/duckdb.ndjson'")


def test_files_of_pandas_polars_and_duckdb(tmp_path: Path) -> None:
    data = [*rows(200), {"extra": "x", "y": 1.0, "arm": 'a "quoted", b', "x": None, "unit": "line\nend é"}]
    _others(pa.Table.from_pylist(data, SCHEMA), tmp_path)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 15
    for path in files:
        assert cells(read(path, WANTED)) == (expected(data), 0), path.name
        assert cells(read(path, WANTED, whole=True)) == (expected(data), 0), path.name


def test_categories_keep_their_type(tmp_path: Path) -> None:
    frame = pd.DataFrame({"arm": pd.Categorical(["a", "b", None]), "y": [1, 2, 3]})
    frame.to_parquet(tmp_path / "a.parquet")
    (batch,) = read(tmp_path / "a.parquet", WANTED)
    assert pa.types.is_dictionary(batch.records.schema.field("arm").type)
    assert batch.records.schema.field("y").type == pa.int64()
