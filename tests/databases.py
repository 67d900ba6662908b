"""Databases with a table of rows, run for real: what a test asks is put to each of them."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from typing import Any

import chdb
import duckdb
import pandas as pd
import psycopg
import pytest

from mariadb import MariaDB
from postgres import Postgres, quick_folder

Connect = Callable[[pd.DataFrame], Any]
"""Loads rows into a table `visits` and gives a connection to it."""

TYPES = {"O": "text", "f": "double precision", "i": "bigint", "b": "boolean"}


def quoted(name: str) -> str:
    """An identifier as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def declared(rows: pd.DataFrame) -> str:
    """The columns with their types."""
    return ", ".join(f"{quoted(name)} {TYPES[rows[name].dtype.kind]}" for name in map(str, rows))


def values_of(rows: pd.DataFrame) -> list[list[Any]]:
    """The rows as Python objects, with null for NaN."""
    return rows.astype(object).where(rows.notna(), None).to_numpy().tolist()


def in_duckdb(rows: pd.DataFrame) -> Any:
    """An in-memory DuckDB."""
    connection = duckdb.connect()
    connection.register("rows_given", rows)
    connection.execute(f"create table visits ({declared(rows)})")
    connection.execute("insert into visits select * from rows_given")
    return connection


def in_sqlite(rows: pd.DataFrame) -> Any:
    """An in-memory SQLite."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"create table visits ({declared(rows)})")
    places = ", ".join("?" * len(rows.columns))
    connection.executemany(f"insert into visits values ({places})", values_of(rows))
    return connection


def in_clickhouse(rows: pd.DataFrame) -> Any:
    """ClickHouse's own engine, inside this process."""
    types = {"O": "Nullable(String)", "f": "Nullable(Float64)", "i": "Nullable(Int64)", "b": "Nullable(Bool)"}
    columns = ", ".join(f"{quoted(name)} {types[rows[name].dtype.kind]}" for name in map(str, rows))
    connection = chdb.connect(":memory:")  # type: ignore[no-untyped-call]
    connection.query(f"create or replace table visits ({columns}) engine = Memory")
    with tempfile.NamedTemporaryFile(suffix=".parquet", dir=quick_folder()) as file:
        rows.to_parquet(file.name)
        connection.query(f"insert into visits select * from file('{file.name}')")
    return connection


def in_spark(session: Any) -> Connect:
    """A Spark session."""

    def load(rows: pd.DataFrame) -> Any:
        types = {"O": "string", "f": "double", "i": "bigint", "b": "boolean"}
        named = {name: "`" + name.replace("`", "``") + "`" for name in map(str, rows)}
        schema = ", ".join(f"{shown} {types[rows[name].dtype.kind]}" for name, shown in named.items())
        session.createDataFrame(values_of(rows), schema).createOrReplaceTempView("visits")
        return _Open(session)

    return load


class _Open:
    """A session that goes on when tests close it."""

    __module__ = "pyspark.sql"

    def __init__(self, session: Any) -> None:
        self.sql = session.sql

    def close(self) -> None:
        pass


def in_mariadb(mariadb: MariaDB) -> Connect:
    """A MariaDB server of the tests."""

    def load(rows: pd.DataFrame) -> Any:
        connection = mariadb.connection()
        types = {"O": "text", "f": "double", "i": "bigint", "b": "boolean"}
        named = {name: "`" + name.replace("`", "``") + "`" for name in map(str, rows)}
        columns = ", ".join(f"{shown} {types[rows[name].dtype.kind]}" for name, shown in named.items())
        with connection.cursor() as cursor:
            cursor.execute(f"create table visits ({columns})")
            cursor.executemany(f"insert into visits values ({', '.join(['%s'] * len(named))})", values_of(rows))
        return connection

    return load


def in_postgres(postgres: Postgres) -> Connect:
    """A PostgreSQL server of the tests."""

    def load(rows: pd.DataFrame) -> Any:
        connection = psycopg.connect(postgres.database())
        with connection.cursor() as cursor:
            cursor.execute(f"create table visits ({declared(rows)})")
            with cursor.copy("copy visits from stdin") as copy:
                for row in values_of(rows):
                    copy.write_row(row)
        return connection

    return load


ENGINES = ("duckdb", "postgres", "sqlite", "clickhouse", "mariadb", "spark")


def connector(engine: str, request: pytest.FixtureRequest) -> Connect:
    """How to load rows into an engine, which starts if it is a server."""
    if engine in (inside := {"duckdb": in_duckdb, "sqlite": in_sqlite, "clickhouse": in_clickhouse}):
        return inside[engine]
    if engine == "postgres":
        return in_postgres(request.getfixturevalue("postgres"))
    return (
        in_mariadb(request.getfixturevalue("mariadb"))
        if engine == "mariadb"
        else in_spark(request.getfixturevalue("session"))
    )
