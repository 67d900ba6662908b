"""Folding a Parquet file: one process and two, beside DuckDB's sums in SQL and analyses that keep all rows."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import best_times, show

import foldaway as fa
from foldaway.numerics.threads import one_core

ROWS = 5_000_000
GROUP = 100_000  # rows in a row group, about what DuckDB and Spark write
COVARIATES = [f"x{c}" for c in range(1, 6)]
MORE = [f"x{c}" for c in range(1, 13)]  # so that the work outweighs the start of a process
UNITS = 200_000
REPLICATES = 1000
LOADED = 500_000  # rows for the libraries that load all of them, and need gigabytes and minutes for ROWS
KEPT = 50_000  # rows for resampling, which takes a minute on these
DRAWS = 20  # of REPLICATES
MOST_OF_SQL = 1.5  # times DuckDB's time
LEAST_OF_TWO = 1.7  # times as fast by two processes, with HC1, on two idle cores
BUSY = "n = 0\nfor i in range(20_000_000): n += i"

CLASSICAL = fa.Plan(
    name="files",
    arm="arm",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["y"],
    covariates=COVARIATES,
    moments=fa.Moments(errors=["classical"]),
)
ROBUST = msgspec.structs.replace(CLASSICAL, moments=fa.Moments(errors=["classical", "HC1"]))
BOOTSTRAP = msgspec.structs.replace(
    CLASSICAL,
    unit="unit",
    moments=fa.Moments(errors=["classical"], bootstrap=REPLICATES, estimators=["regression"]),
)
WIDE = msgspec.structs.replace(ROBUST, covariates=MORE)
SUMS = ["y", *COVARIATES]
SQL = ", ".join(
    ["arm", "count(*)", *(f"sum({a})" for a in SUMS)]
    + [f"sum({a} * {b})" for a, b in combinations_with_replacement(SUMS, 2)]
)


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trial.parquet")
        write(file)
        with one_core():  # one process is one core, for reading as well
            for table in (against_sql, against_loaded_rows, against_resampling, two_processes):
                measured(table, file)


def measured(table: Callable[[Path], None], file: Path) -> None:
    """Print a table; if a library is missing or fails, say so and go on with the next."""
    try:
        table(file)
    except Exception as error:
        print(f"\n{table.__name__}: not measured ({type(error).__name__}: {error})", flush=True)


def write(file: Path) -> None:
    """A trial as a Parquet file, with a column that nobody wants."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, ROWS, GROUP):
        n = min(GROUP, ROWS - start)
        x = rng.normal(size=(n, len(MORE))) * ([1, 10, 0.1, 5] * 3) + ([0, 100, 0, 50] * 3)
        unit = rng.integers(0, UNITS, n)
        treated = unit % 2 == 0
        y = x @ ([1, 0.1, -1, 0.2] * 3) + 0.3 * treated + rng.normal(size=n) * (1 + treated)
        table = pa.table(
            {
                "arm": pa.array(np.where(treated, "treatment", "control")).dictionary_encode(),
                "unit": unit,
                **dict(zip(MORE, x.T.copy(), strict=True)),
                "y": y,
                "page": pa.array(np.char.add("/page/", rng.integers(0, 10**9, n).astype(str))),
            }
        )
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema)
        writer.write_table(table, row_group_size=GROUP)
    assert writer is not None
    writer.close()


def against_sql(file: Path) -> None:
    """The sums that classical errors need, by DuckDB and by foldaway, both on one core."""
    connection = duckdb.connect(config={"threads": 1})

    def sql() -> list[Any]:
        return connection.sql(f"select {SQL} from read_parquet('{file}') group by arm order by arm").fetchall()

    times = best_times(
        {"DuckDB, the same sums in SQL": sql, "foldaway, classical errors": lambda: fa.fold_files(file, CLASSICAL)},
        rounds=3,
        clock=time.process_time,
    )
    peer = times["DuckDB, the same sums in SQL"]
    counts = {arm: n for arm, n, *_ in sql()}
    assert counts == fa.fold_files(file, CLASSICAL).counts
    rows = [[name, f"{t:.2f} s", f"{ROWS / t / 1e6:.1f}"] for name, t in times.items()]
    show(
        f"{ROWS:,} records of a Parquet file, {len(COVARIATES)} covariates, one core",
        rows,
        ["", "CPU time", "million a second"],
    )
    ratio = times["foldaway, classical errors"] / peer
    show_limit("times DuckDB's time", f"at most {MOST_OF_SQL}", ratio, met=ratio <= MOST_OF_SQL)


def show_limit(what: str, limit: str, ours: float, *, met: bool) -> None:
    """Print a promise, and whether it is kept."""
    show("Limit", [[what, limit, f"{ours:.2f}", "yes" if met else "NO"]], ["", "limit", "ours", "met"])


def first_rows(file: Path, n: int) -> Path:
    """A file of the first rows of another, in row groups of the same size."""
    few = file.with_name(f"first{n}.parquet")
    groups = range(-(-n // GROUP))
    pq.write_table(pq.ParquetFile(file).read_row_groups(list(groups)).slice(0, n), few, row_group_size=GROUP)
    return few


def load(file: Path) -> Any:
    """All rows in memory."""
    frame = pq.read_table(file, columns=["arm", "unit", "y", *COVARIATES]).to_pandas()
    frame["treated"] = (frame["arm"] == "treatment").astype(float)
    return frame


def against_loaded_rows(file: Path) -> None:
    """HC1: the file folded, beside libraries that first load every row; all on fewer records, for their sake."""
    import pyfixest
    import statsmodels.formula.api as smf

    few = first_rows(file, LOADED)
    formula = "y ~ treated + " + " + ".join(COVARIATES)
    answers: dict[str, np.ndarray] = {}

    def ours() -> None:
        row = fa.fold_files(few, ROBUST).effects().filter(estimator="regression", se_kind="HC1")[0]
        answers["foldaway"] = np.array([row.estimate, row.std_error])

    def statsmodels() -> None:
        fit = smf.ols(formula, load(few)).fit(cov_type="HC1")
        answers["statsmodels"] = np.array([fit.params["treated"], fit.bse["treated"]])

    def fixest() -> None:
        fit = pyfixest.feols(formula, load(few), vcov="HC1")
        answers["pyfixest"] = np.array([fit.coef()["treated"], fit.se()["treated"]])

    times = best_times({"statsmodels": statsmodels, "pyfixest": fixest, "foldaway": ours}, rounds=2)
    apart = {name: np.max(np.abs(answer / answers["foldaway"] - 1)) for name, answer in answers.items()}
    rows = [[name, f"{t:.2f} s", f"{t / times['foldaway']:.1f}", f"{apart[name]:.0e}"] for name, t in times.items()]
    title = f"The first {LOADED:,} of these records (fewer, since two of the three load them all), HC1 errors"
    show(title, rows, ["", "time", "times foldaway", "apart"])


def against_resampling(file: Path) -> None:
    """The bootstrap by unit: the file folded, beside a library that draws from kept rows."""
    frame = load(file)
    few = frame[frame["unit"] < UNITS * KEPT / ROWS]
    resampled = resampler(few)
    some = first_rows(file, LOADED)
    fa.fold_files(first_rows(file, 1_000), BOOTSTRAP)  # compiles on the first use of a machine
    times = best_times({"arch": resampled, "ours": lambda: fa.fold_files(some, BOOTSTRAP)}, rounds=1)
    scaled = times["arch"] * REPLICATES / DRAWS
    taken = {"arch, on kept rows": (len(few), scaled), "foldaway, from the file": (LOADED, times["ours"])}
    rows = [[name, f"{n:,}", f"{t:.1f} s", f"{1e6 * t / n:.2f} µs"] for name, (n, t) in taken.items()]
    title = (
        f"Bootstrap by unit, {REPLICATES:,} replicates of the regression "
        f"(arch: {DRAWS} of them, times {REPLICATES // DRAWS}, on fewer records)"
    )
    show(title, rows, ["", "records", "time", "per record"])


def resampler(rows: Any) -> Callable[[], None]:
    """Draws units of kept rows with replacement, `DRAWS` times, and fits a regression to each draw."""
    from arch.bootstrap import IIDBootstrap

    groups = list(rows.groupby("unit").indices.values())
    X, y = rows[["treated", *COVARIATES]].assign(one=1.0).to_numpy(), rows["y"].to_numpy()

    def effect(drawn: np.ndarray) -> np.ndarray:
        rows = np.concatenate([groups[g] for g in drawn])
        return np.atleast_1d(np.linalg.lstsq(X[rows], y[rows], rcond=None)[0][0])

    def resampled() -> None:
        IIDBootstrap(np.arange(len(groups)), seed=0).apply(effect, reps=DRAWS)

    return resampled


def two_processes(file: Path) -> None:
    """The same fold by one process and by two, the start of the workers included; and what the machine has to give."""
    rows, faster = [], {}
    fewer = first_rows(file, LOADED)
    for name, plan, source, n in (("HC1", WIDE, file, ROWS), ("bootstrap", BOOTSTRAP, fewer, LOADED)):
        times = best_times({str(p): partial(fa.fold_files, source, plan, processes=p) for p in (1, 2)}, rounds=2)
        faster[name] = times["1"] / times["2"]
        label = f"{name}, {len(plan.covariates)} covariates"
        rows.append([label, f"{n:,}", *(f"{t:.2f} s" for t in times.values()), f"{faster[name]:.2f}"])
    one, two = (min(busy_loops(count) for _ in range(2)) for count in (1, 2))
    ceiling = 2 * one / two
    rows.append(["busy loops that share nothing", "", f"{one:.2f} s", f"{two:.2f} s", f"{ceiling:.2f}"])
    show("One process and two", rows, ["", "records", "one", "two", "times faster"])
    show_limit("HC1, times faster by two", f"at least {LEAST_OF_TWO}", faster["HC1"], met=faster["HC1"] >= LEAST_OF_TWO)
    print(
        f"\nTwo busy loops together do {ceiling:.2f} times the work of one, on this machine and now: work that only\n"
        f"computes can do no more, and HC1 reaches {faster['HC1'] / ceiling:.0%} of it. Near 2 the cores are\n"
        "two, and idle; near 1 they are two threads of one core, or have other work."
    )


def busy_loops(count: int) -> float:
    """Seconds that so many processes take which only compute, all at a time."""
    start = time.perf_counter()
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    for loop in loops:
        loop.wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
