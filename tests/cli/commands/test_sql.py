"""A warehouse's sums on the command line: the statement alone, its answer through a pipe, and a database's address."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.csv
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.simulation.datasets import checkout
from postgres import Postgres

PLAN = fa.Plan(
    name="shop",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue"],
    unit="user_id",
    hash="sha256",
)
ROWS = pa.Table.from_batches(list(checkout(3000, seed=5)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plan, its key's user, and a DuckDB file with a table of visits."""
    PLAN.save(tmp_path / "plan.toml")
    with duckdb.connect(str(tmp_path / "shop.db")) as connection:
        connection.register("rows_given", ROWS)
        connection.execute("create table visits as select * from rows_given")
    return tmp_path


@pytest.fixture
def expected() -> dict[str, Any]:
    trial = fa.Trial(PLAN)
    trial.fold(ROWS)
    found: dict[str, Any] = json.loads(trial.effects().to_json())
    return found


def assert_same(answer: str, expected: dict[str, Any]) -> None:
    found = json.loads(answer)
    assert found["counts"] == expected["counts"]
    for row, other in zip(found["effects"], expected["effects"], strict=True):
        assert row["estimate"] == pytest.approx(other["estimate"], abs=1e-9 * other["std_error"])
        assert row["std_error"] == pytest.approx(other["std_error"], rel=1e-9)


def answer_in(folder: Path) -> pa.Table:
    """What DuckDB answers to the statement, with the group key that a console would get."""
    statement = foldaway("sql", "plan.toml", "--from", "visits", "--dialect", "duckdb", folder=folder).stdout
    group_key = foldaway("sql", "plan.toml", "--group-key", folder=folder).stdout.strip()
    with duckdb.connect(str(folder / "shop.db")) as connection:
        return connection.sql(statement, params={"group_key": group_key}).to_arrow_table()


def test_an_answer_through_a_pipe_is_that_of_the_rows(folder: Path, expected: dict[str, Any]) -> None:
    body = pa.BufferOutputStream()
    pa.csv.write_csv(answer_in(folder), body)
    run = ["run", "plan.toml", "--sums", "-", "--label", "2026-03-01", "--resume", "days", "--save", "days"]
    ran = foldaway(*run, "--json", folder=folder, stdin=body.getvalue().to_pybytes())
    assert_same(ran.stdout, expected)
    again = foldaway(*run, code=1, folder=folder, stdin=body.getvalue().to_pybytes())
    assert "2026-03-01" in again.stderr


def test_a_database_file_by_its_address(folder: Path, expected: dict[str, Any]) -> None:
    run = ["run", "plan.toml", "--query", "select * from visits", "--label", "all", "--json"]
    assert_same(foldaway(*run, "--database", "duckdb:///shop.db", "--save", "days", folder=folder).stdout, expected)
    with sqlite3.connect(folder / "shop.sqlite") as connection:
        connection.execute("create table visits (user_id text, variant text, revenue real)")
        names = ("user_id", "variant", "revenue")
        lines = zip(*(ROWS[name].to_pylist() for name in names), strict=True)
        connection.executemany("insert into visits values (?, ?, ?)", lines)
    assert_same(foldaway(*run, "--database", "sqlite:///shop.sqlite", folder=folder).stdout, expected)


def test_postgresql_by_its_address(folder: Path, expected: dict[str, Any], postgres: Postgres) -> None:
    address = postgres.database()
    with psycopg.connect(address) as connection:
        connection.execute("create table visits (user_id text, variant text, revenue double precision)")
        with connection.cursor().copy("copy visits from stdin") as copy:
            for line in ROWS.select(["user_id", "variant", "revenue"]).to_pylist():
                copy.write_row(tuple(line.values()))
    run = ["run", "plan.toml", "--query", "select * from visits", "--label", "all", "--json", "--database"]
    for known in (address, address.replace("postgresql://", "postgres://")):
        assert_same(foldaway(*run, known, folder=folder).stdout, expected)


def test_coefficients_from_a_database_are_those_from_a_file(folder: Path) -> None:
    fa.Plan.load(folder / "plan.toml", covariates=["revenue_before"]).save(folder / "adjusted.toml")
    pa.csv.write_csv(ROWS, folder / "before.csv")
    command = ["plan", "calibrate", "adjusted.toml"]
    from_file = foldaway(*command, "before.csv", folder=folder)
    asked = ["--database", "duckdb:///shop.db", "--query", "visits"]
    assert foldaway(*command, *asked, folder=folder).stdout == from_file.stdout
    for wrong in (["before.csv", *asked], asked[:2], []):
        assert "--database" in foldaway(*command, *wrong, folder=folder, code=1).stderr


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("label", ["--sums", "answer.csv"]),
        ("not both", ["--sums", "answer.csv", "--query", "visits", "--label", "x"]),
        ("go together", ["--query", "visits", "--label", "x"]),
        ("take the place of files", ["rows.csv", "--sums", "answer.csv", "--label", "x"]),
        ("does not begin with", ["--database", "shop.db", "--query", "visits", "--label", "x"]),
        (r"did you mean 'duckdb'\? For", ["--database", "duckbd:///shop.db", "--query", "visits", "--label", "x"]),
        ("check that the file exists", ["--database", "duckdb:///absent/shop.db", "--query", "visits", "--label", "x"]),
        ("could not run the query", ["--database", "duckdb:///shop.db", "--query", "nothing", "--label", "x"]),
        ("is empty|lacks columns", ["--sums", "plan.toml", "--label", "x"]),
        ("nothing to fold", []),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence_and_nothing_is_saved(
    folder: Path, said: str, options: list[str]
) -> None:
    ran = foldaway("run", "plan.toml", *options, "--save", "days", code=1, folder=folder)
    assert re.search(said, " ".join(ran.stderr.split()))
    assert not (folder / "days").exists()


def test_fewer_units_than_a_cohort_are_not_saved(folder: Path) -> None:
    run = ["run", "plan.toml", "--database", "duckdb:///shop.db", "--label", "few", "--save", "days"]
    ran = foldaway(*run, "--query", "select * from visits limit 20", code=1, folder=folder)
    assert "cohort" in ran.stderr
    assert not (folder / "days").exists()


def test_a_plan_without_a_group_key_says_so(folder: Path) -> None:
    fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]).save(folder / "other.toml")
    ran = foldaway("sql", "other.toml", "--group-key", code=1, folder=folder)
    assert "no group key" in ran.stderr
