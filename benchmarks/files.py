"""Folding a Parquet file: one process and two, beside DuckDB's sums in SQL and analyses that keep all rows."""

from __future__ import annotations

import tempfile
import time
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

ROWS = 5_000_000
GROUP = 100_000  # rows in a row group, about what DuckDB and Spark write
COVARIATES = [f"x{c}" for c in range(1, 6)]
MORE = [f"x{c}" for c in range(1, 13)]  # so that the work outweighs the start of a process
UNITS = 200_000
REPLICATES = 1000
KEPT = 200_000  # rows for the alternatives that take minutes on all

CLASSICAL = fa.Plan(
    name="files",
    arm="arm",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["y"],
    covariates=COVARIATES,
    errors=["classical"],
)
ROBUST = msgspec.structs.replace(CLASSICAL, errors=["classical", "HC1"])
BOOTSTRAP = msgspec.structs.replace(CLASSICAL, unit="unit", bootstrap=REPLICATES, estimators=["regression"])
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
        pa.set_cpu_count(1)  # one process is one core, for reading as well
        against_sql(file)
        against_kept_rows(file)
        two_processes(file)


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
    rows = [[name, f"{t:.2f} s", f"{ROWS / t / 1e6:.1f}", f"{t / peer:.2f}"] for name, t in times.items()]
    title = f"{ROWS:,} records of a Parquet file, {len(COVARIATES)} covariates, one core (promised: within 1.5)"
    show(title, rows, ["", "CPU time", "million a second", "times DuckDB"])


def against_kept_rows(file: Path) -> None:
    """HC1 and the clustered bootstrap: the file folded, beside libraries that first load every row."""
    import pyfixest
    import statsmodels.formula.api as smf
    from arch.bootstrap import IIDBootstrap

    columns = ["arm", "unit", "y", *COVARIATES]
    formula = "y ~ treated + " + " + ".join(COVARIATES)
    answers: dict[str, np.ndarray] = {}

    def load() -> Any:
        frame = pq.read_table(file, columns=columns).to_pandas()
        frame["treated"] = (frame["arm"] == "treatment").astype(float)
        return frame

    def ours() -> None:
        row = fa.fold_files(file, ROBUST).effects().filter(estimator="regression", se_kind="HC1")[0]
        answers["foldaway"] = np.array([row.estimate, row.std_error])

    def statsmodels() -> None:
        fit = smf.ols(formula, load()).fit(cov_type="HC1")
        answers["statsmodels"] = np.array([fit.params["treated"], fit.bse["treated"]])

    def fixest() -> None:
        fit = pyfixest.feols(formula, load(), vcov="HC1")
        answers["pyfixest"] = np.array([fit.coef()["treated"], fit.se()["treated"]])

    times = best_times({"statsmodels": statsmodels, "pyfixest": fixest, "foldaway": ours}, rounds=1)
    apart = {name: np.max(np.abs(answer / answers["foldaway"] - 1)) for name, answer in answers.items()}
    rows = [[name, f"{t:.1f} s", f"{t / times['foldaway']:.1f}", f"{apart[name]:.0e}"] for name, t in times.items()]
    show(f"{ROWS:,} records, regression with HC1 errors, from the file", rows, ["", "time", "times foldaway", "apart"])

    frame = load()
    few = frame[frame["unit"] < frame["unit"].max() * KEPT / ROWS]
    groups = list(few.groupby("unit").indices.values())
    X, y = few[["treated", *COVARIATES]].assign(one=1.0).to_numpy(), few["y"].to_numpy()

    def resampled() -> None:
        """Units drawn with replacement, and a regression for each draw."""

        def effect(drawn: np.ndarray) -> np.ndarray:
            rows = np.concatenate([groups[g] for g in drawn])
            return np.atleast_1d(np.linalg.lstsq(X[rows], y[rows], rcond=None)[0][0])

        IIDBootstrap(np.arange(len(groups)), seed=0).apply(effect, reps=REPLICATES // 20)

    few_file = file.with_name("few.parquet")
    pq.write_table(pa.Table.from_pandas(few), few_file)
    fa.fold_files(few_file, BOOTSTRAP)  # compiles on the first use of a machine
    times = best_times({"arch": resampled, "all": lambda: fa.fold_files(file, BOOTSTRAP)}, rounds=1)
    taken = {"arch, on kept rows": (len(few), 20 * times["arch"]), "foldaway, from the file": (ROWS, times["all"])}
    rows = [[name, f"{n:,}", f"{t:.1f} s", f"{1e6 * t / n:.2f} µs"] for name, (n, t) in taken.items()]
    title = f"Bootstrap by unit, {REPLICATES:,} replicates of the regression (arch: a twentieth of them, times 20)"
    show(title, rows, ["", "records", "time", "per record"])


def two_processes(file: Path) -> None:
    """The same fold by one process and by two, the start of the workers included."""
    rows = []
    for name, plan in ((f"HC1, {len(MORE)} covariates", WIDE), ("bootstrap", BOOTSTRAP)):
        times = best_times({str(p): partial(fa.fold_files, file, plan, processes=p) for p in (1, 2)}, rounds=2)
        rows.append([name, *(f"{t:.2f} s" for t in times.values()), f"{times['1'] / times['2']:.2f}"])
    title = f"{ROWS:,} records, one process and two (promised: HC1 1.7 times as fast on two idle cores)"
    show(title, rows, ["errors", "one", "two", "times faster"])


if __name__ == "__main__":
    main()
