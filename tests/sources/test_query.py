"""Queries: every kind of connection gives the trial of the rows it selects, and errors say nothing of them."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import adbc_driver_sqlite.dbapi
import duckdb
import pandas as pd
import psutil
import psycopg
import pytest

import foldaway as fa
from foldaway.sources import query as module
from postgres import Postgres
from resampling import KEY, assert_same_replicates, folded, of_records, of_units
from trials import make_trial

QUERY = "select * from visits"
SECRET = "Kilimanjaro-4711"


def in_duckdb(rows: pd.DataFrame) -> Any:
    connection = duckdb.connect()
    connection.register("rows", rows)
    connection.execute("create temporary table visits as select * from rows")  # which only this connection sees
    return connection


def in_adbc(rows: pd.DataFrame) -> Any:
    connection = adbc_driver_sqlite.dbapi.connect()
    with connection.cursor() as cursor:
        cursor.adbc_ingest("visits", rows_as_arrow(rows))
    return connection


def in_sqlite(rows: pd.DataFrame) -> Any:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"create table visits ({', '.join(map(repr, rows.columns))})")
    places = ", ".join("?" * len(rows.columns))
    connection.executemany(f"insert into visits values ({places})", rows.astype(object).to_numpy().tolist())
    return connection


def rows_as_arrow(rows: pd.DataFrame) -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(rows, preserve_index=False)


CONNECTIONS = {"duckdb": in_duckdb, "adbc": in_adbc, "sqlite3": in_sqlite}


@pytest.fixture(params=CONNECTIONS)
def connect(request: pytest.FixtureRequest) -> Any:
    return CONNECTIONS[request.param]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "ROWS", 64)
    return 64


def test_any_connection_gives_the_one_pass_bootstrap(connect: Any, small_batches: int) -> None:
    plan, rows = of_units()
    told: list[int] = []
    with closing(connect(rows)) as connection:
        trial = fa.fold_query(connection, QUERY, plan, key=KEY, progress=told.append)
    assert trial.counts == folded(plan, rows).counts
    assert_same_replicates(trial, folded(plan, rows))
    assert trial.key == KEY
    assert told[-1] == len(rows)
    assert told == sorted(set(told))


def test_batches_are_small_where_the_database_can_be_told(small_batches: int) -> None:
    plan, rows = make_trial(3, n=500)
    for connect in (in_duckdb, in_sqlite):
        told: list[int] = []
        with closing(connect(rows)) as connection:
            fa.fold_query(connection, QUERY, plan, progress=told.append)
        assert len(told) > 500 / 65 / 2


def test_units_together_are_whole_whatever_the_batches(connect: Any, small_batches: int) -> None:
    plan, rows = make_trial(5, n=400, units=True)
    assert plan.whole_units
    shuffled = rows.sample(frac=1, random_state=1)
    expected = fa.Trial(plan)
    expected.fold(rows)
    with closing(connect(shuffled)) as connection:
        found = fa.fold_query(connection, QUERY, plan)
    ours, theirs = (trial.effects().filter(se_kind="CR1").to_pandas() for trial in (found, expected))
    assert len(ours)
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9)


def test_parameters_reach_the_database(connect: Any) -> None:
    plan, rows = make_trial(7)
    with closing(connect(rows)) as connection:
        trial = fa.fold_query(connection, "select * from visits where x0 > ?", plan, parameters=[0.0])
    assert trial.n == (rows["x0"] > 0).sum()


def test_a_trial_goes_on_from_where_it_was(connect: Any) -> None:
    plan, rows = of_records()
    first = folded(plan, rows[:300])
    with closing(connect(rows[300:])) as connection:
        whole = fa.fold_query(connection, QUERY, plan, into=first)
    assert (first.n, whole.n) == (300, 900)
    one_pass = folded(plan, rows).effects().filter(estimator="regression", se_kind="HC1")[0]
    assert whole.effects().filter(estimator="regression", se_kind="HC1")[0].estimate == pytest.approx(
        one_pass.estimate, rel=1e-9
    )


def test_a_key_and_a_trial_to_go_on_with_exclude_each_other() -> None:
    plan, rows = of_units()
    with closing(in_duckdb(rows)) as connection, pytest.raises(fa.SourceError, match="not both"):
        fa.fold_query(connection, QUERY, plan, key=KEY, into=fa.Trial(plan, key=KEY))


def test_no_rows_give_an_empty_trial(connect: Any) -> None:
    plan, rows = make_trial(7)
    with closing(connect(rows)) as connection:
        assert fa.fold_query(connection, "select * from visits where x0 > 1e9", plan).n == 0


def test_a_missing_or_doubled_column_is_named_and_nothing_is_folded(connect: Any) -> None:
    plan, rows = make_trial(7)
    begun = fa.Trial(plan)
    with (
        closing(connect(rows)) as connection,
        pytest.raises(fa.RecordError, match="data has no column 'x0'"),
    ):
        fa.fold_query(connection, 'select "group", y0 from visits', plan, into=begun)
    assert begun.n == 0
    with closing(in_sqlite(rows)) as connection, pytest.raises(fa.RecordError, match="more than one column 'x0'"):
        fa.fold_query(connection, "select *, x0 from visits", plan)


def test_a_faulty_record_in_a_late_batch_leaves_the_trial_as_it_was(connect: Any, small_batches: int) -> None:
    plan, rows = make_trial(7, n=300)
    rows.loc[290, "y0"] = None
    begun = fa.Trial(plan)
    with closing(connect(rows)) as connection, pytest.raises(fa.RecordError, match="1 null"):
        fa.fold_query(connection, QUERY, plan, into=begun)
    assert begun.n == 0


def raised(action: Any) -> BaseException:
    with pytest.raises(fa.FoldawayError) as caught:
        action()
    return caught.value


def everything_in(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield from (str(error), repr(error))
        error = error.__cause__ or error.__context__


def test_an_error_about_a_value_does_not_show_it() -> None:
    plan, rows = make_trial(7)
    rows["unit"] = SECRET
    query = 'select "group", x0, cast(unit as double) as y0 from visits'
    with closing(in_duckdb(rows)) as connection:
        with pytest.raises(duckdb.ConversionException, match=SECRET):  # the database does
            connection.execute(query).fetchall()
        error = raised(lambda: fa.fold_query(connection, query, plan))
    assert "ConversionException" in str(error)
    assert not any(SECRET in text for text in everything_in(error))


@pytest.mark.parametrize(
    ("query", "words"),
    [("selec 1", "ParserException.*selec"), ("select * from nowhere", "CatalogException.*nowhere")],
)
def test_an_error_in_the_query_is_shown(query: str, words: str) -> None:
    plan, rows = make_trial(7)
    with closing(in_duckdb(rows)) as connection, pytest.raises(fa.SourceError, match=f"(?s){words}"):
        fa.fold_query(connection, query, plan)


@pytest.mark.parametrize("connect", [in_duckdb, in_sqlite])
def test_what_selects_nothing_is_refused(connect: Any) -> None:
    plan, rows = make_trial(7)
    words = "selects nothing|has no column"  # DuckDB answers everything with a table
    with closing(connect(rows)) as connection, pytest.raises(fa.FoldawayError, match=words):
        fa.fold_query(connection, "create table others (x integer)", plan)


def test_postgres_streams_from_the_server(postgres: Postgres, small_batches: int) -> None:
    plan, rows = of_units()
    with psycopg.connect(postgres.database().replace("+psycopg", "")) as connection:
        columns = ", ".join(
            f'"{name}" {"text" if name in ("group", "unit") else "double precision"}' for name in rows.columns
        )
        connection.execute(f"create temporary table visits ({columns})")
        places = ", ".join(["%s"] * len(rows.columns))
        connection.cursor().executemany(f"insert into visits values ({places})", rows.astype(object).values.tolist())
        told: list[int] = []
        trial = fa.fold_query(connection, QUERY, plan, key=KEY, progress=told.append)
        assert_same_replicates(trial, folded(plan, rows))
        assert told[0] == small_batches
        with pytest.raises(fa.SourceError, match=r"UndefinedTable.*nowhere"):
            fa.fold_query(connection, "select * from nowhere", plan)
        connection.rollback()
        with pytest.raises(fa.SourceError, match=r"If the query gives unit twice, let it name its columns"):
            fa.fold_query(connection, "select unit from (select 'a' as unit, 'b' as unit) as visits", plan)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_memory_does_not_grow_with_the_answer() -> None:
    plan = fa.Plan(name="long", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    query = "select case i % 2 when 0 then 'a' else 'b' end as g, sqrt(i) as y, 2.0 * i as z from range({}) t(i)"
    peak: list[int] = []

    def watch(records: int) -> None:
        peak.append(psutil.Process().memory_info().rss)

    with closing(duckdb.connect()) as connection:
        fa.fold_query(connection, query.format(500_000), plan)
        start = psutil.Process().memory_info().rss
        trial = fa.fold_query(connection, query.format(6_000_000), plan, progress=watch)
    assert trial.n == 6_000_000  # of 150 MB as columns
    assert max(peak) - start < 60 * 2**20
