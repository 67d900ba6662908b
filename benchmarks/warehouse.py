"""Sums where the rows are: beside the same sums in SQL by hand, and beside rows that are streamed to Python."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from files import show_limit
from forwarding import Counted
from measure import best_times, show

import foldaway as fa
from foldaway.simulation.datasets import checkout

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import postgres as test_postgres

ROWS = 5_000_000
MOST_OF_HAND = 1.3  # times the time of the same sums by hand
LEAST_OF_STREAMING = 5.0  # times as fast as streaming the rows
PLAN = fa.Plan(
    name="shop",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue"],
    unit="user_id",
    hash="sha256",
)
STREAMED = fa.Plan.of({**PLAN.settings(), "hash": "siphash"})
COLUMNS = ["variant", "revenue", "user_id"]

# What somebody writes who knows what the trial needs: sums about the arms' means by arm and group, products by arm,
# units by arm, and faulty records by arm and rule.
BY_HAND = """
with records as (
    select variant, revenue::double as y, user_id, sha256($group_key || user_id) as hash,
        variant is null or variant not in ('control', 'treatment') as no_arm,
        revenue is null or isnan(revenue) or abs(revenue) > 1e40 as no_number, user_id is null as no_unit
    from visits
), good as (
    select variant, y, user_id, ('0x' || hash[1:3])::int % 128 as cell from records
    where not (no_arm or no_number or no_unit)
), means as (
    select variant, avg(y) as mean from good group by variant
), cells as (
    select variant, cell, count(*) as n, sum(y - mean) as total, sum((y - mean) ** 2) as square, sum(abs(y)) as absolute
    from good join means using (variant) group by variant, cell
)
select variant, cell, n::double, total, 0, 0 from cells
union all select variant, -1, sum(n), sum(square), sum(absolute), 0 from cells group by variant
union all select variant, -2, mean, 0, 0, 0 from means group by all
union all select variant, -3, count(distinct user_id), 0, 0, 0 from good group by variant
union all select variant, -4, sum(no_arm::int), sum(no_number::int), sum(no_unit::int), 0 from records group by variant
"""


def main() -> None:
    """Print the tables; `python -m benchmarks warehouse` runs a few minutes."""
    table = pa.Table.from_batches([*checkout(ROWS)]).select(COLUMNS)
    table = table.set_column(2, "user_id", table["user_id"].cast(pa.string()))
    in_duckdb(table)
    in_postgres(table)


def in_duckdb(table: pa.Table) -> None:
    """The time of the statement, and of the same sums by hand."""
    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("create table visits as select * from given")
    statement, bound = PLAN.sql("visits", dialect="duckdb"), {"group_key": "0" * 32}
    times = best_times(
        {
            "by hand": lambda: connection.execute(BY_HAND, bound).fetchall(),
            "plan.sql": lambda: connection.sql(statement, params=bound).to_arrow_table(),
            "fold_query, whole": lambda: fa.fold_query(connection, "visits", PLAN, label="all"),
        },
        rounds=3,
    )
    rows = [[name, f"{taken:.2f} s", f"{taken / times['by hand']:.2f}"] for name, taken in times.items()]
    show(f"DuckDB: sums of {ROWS:,} records where they are", rows, ["", "time", "times by hand"])
    ratio = times["plan.sql"] / times["by hand"]
    show_limit("times the time by hand", f"at most {MOST_OF_HAND}", ratio, met=ratio <= MOST_OF_HAND)


def in_postgres(table: pa.Table) -> None:
    """The time to sum in PostgreSQL, and to stream its rows, and the bytes that cross the connection."""
    programs = test_postgres.programs()
    if programs is None:
        sys.exit("PostgreSQL is missing: tools/install_test_services.sh")
    server = test_postgres.Postgres(programs)
    server.start()
    try:
        address = server.database()
        fill(address, table)
        ways = {"sums": PLAN, "rows, streamed": STREAMED}
        times = best_times({name: partial(folded, address, plan) for name, plan in ways.items()}, rounds=1)
        crossed = {name: bytes_of(server, address, plan) for name, plan in ways.items()}
    finally:
        server.remove()
    rows = [[name, f"{taken:.2f} s", f"{crossed[name]:,}"] for name, taken in times.items()]
    show(f"PostgreSQL: {ROWS:,} records", rows, ["", "time", "bytes crossed"])
    ratio = times["rows, streamed"] / times["sums"]
    show_limit("times as fast as streaming", f"at least {LEAST_OF_STREAMING:g}", ratio, met=ratio >= LEAST_OF_STREAMING)


def fill(address: str, table: pa.Table) -> None:
    """Load the rows."""
    with psycopg.connect(address) as connection:
        connection.execute("create table visits (variant text, revenue float8, user_id text)")
        with connection.cursor().copy("copy visits from stdin") as copy:
            for batch in table.to_batches():
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
        connection.execute("analyze visits")


def folded(address: str, plan: fa.Plan) -> fa.Trial:
    """A trial of all rows: as sums, or of rows that are streamed."""
    with psycopg.connect(address) as connection, warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.StreamedWarning)
        return fa.fold_query(connection, "select variant, revenue, user_id from visits", plan, label="all")


def bytes_of(server: Any, address: str, plan: fa.Plan) -> int:
    """How many bytes come from the server for it."""
    with Counted(server.port) as between:
        folded(address.replace(f":{server.port}/", f":{between.port}/"), plan)
    return between.bytes
