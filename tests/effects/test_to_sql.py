"""Effects appended to a table: the same numbers come back, from every database."""

from __future__ import annotations

import math
import sqlite3
from typing import Any

import duckdb
import psycopg
import pytest

import foldaway as fa
from mariadb import MariaDB
from postgres import Postgres


@pytest.fixture
def effects() -> fa.Effects:
    plan = fa.Plan(
        name="shop", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", fa.Mean("z", better="higher", margin=1)]
    )
    trial = fa.Trial(plan)
    trial.fold(
        {"g": ["a", "b"] * 300, "y": [float(i % 7) for i in range(600)], "z": [float(i % 5) for i in range(600)]}
    )
    return trial.effects()


@pytest.fixture(params=["sqlite", "duckdb", "postgres", "mariadb"])
def connection(request: pytest.FixtureRequest) -> Any:
    def opened() -> Any:
        match request.param:
            case "sqlite":
                return sqlite3.connect(":memory:")
            case "duckdb":
                return duckdb.connect()
            case "postgres":
                server: Postgres = request.getfixturevalue("postgres")
                return psycopg.connect(server.database())
        maria: MariaDB = request.getfixturevalue("mariadb")
        return maria.connection()

    connection = opened()
    yield connection
    connection.close()


def fetched(connection: Any, query: str) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(query)
    return [tuple(row) for row in cursor.fetchall()]


def test_rows_are_appended_with_trial_fingerprint_and_time(connection: Any, effects: fa.Effects) -> None:
    effects.to_sql(connection, "found")
    effects.to_sql(connection, "found")
    connection.rollback() if not isinstance(connection, duckdb.DuckDBPyConnection) else None  # all is committed
    written = fetched(
        connection,
        "select trial, fingerprint, outcome, estimate, ci_upper, n, reliable from found order by outcome, estimate",
    )
    assert len(written) == 2 * len(effects)
    expected = sorted(
        (effects.trial, effects.plan.fingerprint, row.outcome, row.estimate, row.ci_upper, row.n, row.reliable)
        for row in effects
        for _ in range(2)
    )
    for there, row in zip(sorted(written), expected, strict=True):
        assert there[:3] == row[:3]
        assert there[3:] == tuple(None if isinstance(x, float) and math.isinf(x) else x for x in row[3:])
    assert len(fetched(connection, "select distinct written_at from found where written_at is not null")) in (1, 2)


def test_names_of_tables_are_quoted(effects: fa.Effects) -> None:
    connection = sqlite3.connect(":memory:")
    effects.to_sql(connection, 'odd "name; drop table x')
    ((name,),) = fetched(connection, "select name from sqlite_master")
    assert name == 'odd "name; drop table x'


def test_a_table_with_other_columns_is_refused_and_left_alone(effects: fa.Effects) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table found (x text)")
    with pytest.raises(fa.SourceError, match="other columns"):
        effects.to_sql(connection, "found")
    assert fetched(connection, "select * from found") == []


def test_what_is_no_connection_is_refused(effects: fa.Effects) -> None:
    with pytest.raises(fa.SourceError, match="to_pandas"):
        effects.to_sql({}, "found")
