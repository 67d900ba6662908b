"""Sums and moments by group, from a file and from memory, beside DuckDB's sums in SQL and two ways of resampling.

    python -m benchmarks groups

All on two threads, in one run. The coefficients are in the plan, so that a record is folded as its outcome and ỹ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
from files import BOOTSTRAP, DRAWS, KEPT, LOADED, REPLICATES, ROWS, UNITS, first_rows, load, resampler, write
from folded_by_group import CENTER, COVARIATES, KEY, SLOPES, SUMS, moments_in, sums_in
from measure import best_times, show

import foldaway as fa
from foldaway.tallies import Lean

THREADS, GROUPS = 2, SUMS.groups
PREDICTED = " + ".join(f"{SLOPES[name]} * ({name} - {CENTER[name]})" for name in COVARIATES)
SQL = f"""
select arm, hash(unit) & {GROUPS - 1} as g, count(*), sum(y), sum(t), sum(y * y), sum(t * t), sum(y * t), sum(abs(y))
from (select arm, unit, y, y - ({PREDICTED}) as t from {{source}})
group by all
"""

MOST_OF_SQL = {"sums": 1.5, "moments": 2.5, "table": 1.5}  # times DuckDB's time over the same input
LEAST_OF_BOOTSTRAP, LEAST_OF_ARCH = 15, 1000  # times faster, per record
MOST_FROM_COLD = 3.0  # seconds


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trial.parquet")
        write(file)
        some = first_rows(file, LOADED)
        few = first_rows(file, 2 * LOADED // 5)
        for source in (few, some):  # the first compiles
            sums_in(source), moments_in(source)
        fa.fold_files(few, BOOTSTRAP)
        per_record = against_sql(file)
        against_resampling(file, some, per_record)
        from_cold(few)


def against_sql(file: Path) -> float:
    """The same sums in SQL; gives our seconds per record for the sums."""
    connection = duckdb.connect(config={"threads": THREADS})

    table = pq.read_table(file, columns=["arm", "unit", "y", *COVARIATES])
    connection.register("kept", table)

    def sql(source: str) -> list[Any]:
        return connection.sql(SQL.format(source=source)).fetchall()

    def folded() -> fa.Trial:
        trial = fa.Trial(SUMS, key=KEY)
        trial.fold(table)
        return trial

    from_file = f"read_parquet('{file}')"
    contestants = {
        "sql": lambda: sql(from_file),
        "sums": lambda: sums_in(file),
        "moments": lambda: moments_in(file),
        "sql_table": lambda: sql("kept"),
        "table": folded,
    }
    times = best_times(contestants, rounds=5)
    cells = sql(from_file)
    trial = sums_in(file)
    assert trial.n == moments_in(file).n == folded().n == sum(cell[2] for cell in cells) == ROWS
    assert isinstance(trial.tallies, Lean)
    for column, place in ((0, 3), (1, 4)):
        np.testing.assert_allclose(
            trial.tallies.sums.totals(column).sum(), sum(cell[place] for cell in cells), rtol=1e-9
        )
    names = {
        "sql": "DuckDB, the same sums in SQL",
        "sums": "foldaway, sums",
        "moments": "foldaway, moments",
        "sql_table": "DuckDB, of an Arrow table",
        "table": "foldaway, sums of an Arrow table",
    }
    ratios = {name: t / times["sql_table" if name.endswith("table") else "sql"] for name, t in times.items()}
    rows = [
        [names[name], f"{t:.3f} s", f"{ROWS / t / 1e6:.1f}", f"{ratios[name]:.2f}", *limit(name, ratios[name])]
        for name, t in times.items()
    ]
    title = f"{ROWS:,} records of a Parquet file, {len(COVARIATES)} covariates, {GROUPS} groups, {THREADS} threads"
    show(title, rows, ["", "time", "million a second", "times DuckDB", "at most", "met"])
    return times["sums"] / ROWS


def limit(name: str, ratio: float) -> list[str]:
    """What was promised, and whether it is kept."""
    most = MOST_OF_SQL.get(name)
    return ["", ""] if most is None else [f"{most:g}", "yes" if ratio <= most else "NO"]


def against_resampling(file: Path, some: Path, per_record: float) -> None:
    """An error by unit from our own bootstrap, and from a library that draws from kept rows."""
    times = best_times({"bootstrap": lambda: fa.fold_files(some, BOOTSTRAP)}, rounds=1)
    peers = {"foldaway, bootstrap": (LOADED, times["bootstrap"], LEAST_OF_BOOTSTRAP)}
    try:
        frame = load(file)
        kept = frame[frame["unit"] < UNITS * KEPT / ROWS]
        drawn = best_times({"arch": resampler(kept)}, rounds=1)["arch"] * REPLICATES / DRAWS
        peers["arch, on kept rows"] = (len(kept), drawn, LEAST_OF_ARCH)
    except ImportError:
        print("\narch is not installed: not measured")
    rows = [["foldaway, sums", f"{ROWS:,}", f"{1e6 * per_record:.3f} µs", "", "", ""]]
    for name, (n, seconds, least) in peers.items():
        faster = seconds / n / per_record
        met = "yes" if faster >= least else "NO"
        rows.append([name, f"{n:,}", f"{1e6 * seconds / n:.3f} µs", f"{faster:,.0f}", f"{least:,}", met])
    title = (
        f"Errors by unit: sums by group beside {REPLICATES:,} replicates (arch: {DRAWS}, times {REPLICATES // DRAWS})"
    )
    show(title, rows, ["", "records", "per record", "times slower", "at least", "met"])


def from_cold(few: Path) -> None:
    """The first use on a machine: a new process without compiled kernels on disk, beside one that finds them."""
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            start = time.perf_counter()
            program = f"import pathlib, folded_by_group; folded_by_group.sums_in(pathlib.Path({str(few)!r}))"
            environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": os.pathsep.join(sys.path)}
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            seconds.append(time.perf_counter() - start)
    rows = [
        [
            "no compiled kernels yet",
            f"{seconds[0]:.2f} s",
            f"{MOST_FROM_COLD:g} s",
            "yes" if seconds[0] <= MOST_FROM_COLD else "NO",
        ],
        ["compiled kernels on disk", f"{seconds[1]:.2f} s", "", ""],
    ]
    show("Start to end of a process that folds a small file", rows, ["", "time", "at most", "met"])


if __name__ == "__main__":
    main()
