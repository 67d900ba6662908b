"""Databases with a table of rows, run for real: what a test asks is put to each of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import psycopg
import pytest

from postgres import Postgres

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


def in_postgres(postgres: Postgres) -> Callable[[pd.DataFrame], Any]:
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


ENGINES = ["duckdb", "sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]
