"""Does the same trial give the same numbers, whatever engine or stream it comes through?

One simulated trial is folded by every path there is, into sums by group and again into moments; every sum, effects,
errors and every replicate of the bootstrap by unit are compared with those of one process. A path is a function,
entered into `PATHS` by the decorator `path`.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

# One thread for linear algebra, two processes at most: every path has the same two cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import foldaway as fa  # noqa: E402
from foldaway.plan import Bootstrap  # noqa: E402
from foldaway.simulation.datasets import checkout  # noqa: E402
from foldaway.tallies import Lean  # noqa: E402
from studies import findings  # noqa: E402
from studies.brokers import through_nats, through_redis  # noqa: E402
from studies.findings import Findings, options_of, publish  # noqa: E402

NAME = "same_everywhere"
FILES = 20
MOST = 1e-9  # difference
KEY = bytes(range(16))
ONE = "one process"


@dataclass(frozen=True)
class Setting:
    """What every path is given.

    Attributes:
        files: Parquet files with all records.
        plan: The plan: several records to a unit, and sums by group, or moments and a bootstrap by unit.
        key: The trial's key.
        folder: An empty folder for whatever the path needs.
    """

    files: Sequence[Path]
    plan: fa.Plan
    key: bytes
    folder: Path

    @property
    def source(self) -> str:
        """The folder of the files."""
        return str(self.files[0].parent)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records, a few at a time."""
        for file in self.files:
            yield from pq.ParquetFile(file).iter_batches()


Fold = Callable[[Setting], fa.Trial]
PATHS: dict[str, Fold] = {}


def path(name: str) -> Callable[[Fold], Fold]:
    """Enter a path under a name; those that are entered run in this order."""

    def entered(fold: Fold) -> Fold:
        PATHS[name] = fold
        return fold

    return entered


@path(ONE)
def one_process(setting: Setting) -> fa.Trial:
    """Files folded in this process."""
    return _folded_files(setting, processes=1)


@path("two processes")
def two_processes(setting: Setting) -> fa.Trial:
    """Files folded by two worker processes, their tallies merged."""
    return _folded_files(setting, processes=2)


def _folded_files(setting: Setting, processes: int) -> fa.Trial:
    trial = fa.Trial(setting.plan, key=setting.key)
    return fa.fold_files([str(file) for file in setting.files], setting.plan, into=trial, processes=processes)


@path("DuckDB query")
def duckdb_query(setting: Setting) -> fa.Trial:
    """A query over the files."""
    import duckdb

    with closing(duckdb.connect()) as connection:
        query = f"select * from read_parquet('{setting.source}/*.parquet')"
        return fa.fold_query(connection, query, setting.plan, key=setting.key)


@path("Dask, two processes")
def on_dask(setting: Setting) -> fa.Trial:
    """A Dask data frame of the files."""
    import dask
    import dask.dataframe as dd

    from foldaway.engines import dask as engine

    with dask.config.set(scheduler="processes", num_workers=2):
        return engine.fold(dd.read_parquet(setting.source), setting.plan, key=setting.key)


@path("Spark local[2]")
def on_spark(setting: Setting) -> fa.Trial:
    """A Spark data frame of the files."""
    import sparks
    from foldaway.engines import spark

    return spark.fold(sparks.session().read.parquet(setting.source), setting.plan, key=setting.key)


@path("Spark stream")
def on_spark_stream(setting: Setting) -> fa.Trial:
    """The files as a stream, four to a micro-batch."""
    import sparks
    from foldaway.engines import spark

    session = sparks.session()
    schema = session.read.parquet(setting.source).schema
    stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 4).parquet(setting.source)
    store, trigger = setting.folder / "store", {"availableNow": True}
    query = spark.fold_stream(stream, setting.plan, store=store, key=setting.key, trigger=trigger)
    query.awaitTermination()
    trial = query.end()
    sparks.remove()
    return trial


@path("NATS")
def over_nats(setting: Setting) -> fa.Trial:
    """The records as messages of a NATS server, consumed as `foldaway consume` does."""
    return through_nats(setting.batches(), setting.plan, setting.key)


@path("Redis")
def over_redis(setting: Setting) -> fa.Trial:
    """The same with a Redis server."""
    return through_redis(setting.batches(), setting.plan, setting.key)


COLUMNS = ("revenue_before", "country[fr]", "country[us]")

SUMS = fa.Plan(
    name="same-everywhere",
    arm="variant",
    arms={"control": 0.5, "treatment": 0.5},
    outcomes=["revenue", "converted"],
    covariates=["revenue_before", {"column": "country", "levels": ["de", "fr", "us"]}],
    unit="unit",
    coefficients=fa.Coefficients(
        center=dict(zip(COLUMNS, (20.0, 0.3, 0.2), strict=True)),
        slopes={
            "revenue": dict(zip(COLUMNS, (0.5, 1.0, -1.0), strict=True)),
            "converted": dict(zip(COLUMNS, (0.001, 0.02, 0.01), strict=True)),
        },
    ),
)


def moments_plan(replicates: int) -> fa.Plan:
    """The same question of a trial that keeps moments and a bootstrap by unit."""
    changes = {"moments": {"bootstrap": Bootstrap(replicates)}, "coefficients": None}
    return msgspec.structs.replace(SUMS, **changes)


def write(folder: Path, records: int, seed: int) -> list[Path]:
    """The trial as files. Ten users are a household, whose members in one arm are a unit: records of it lie apart."""
    folder.mkdir()
    files = []
    batches = checkout(records, seed=seed, chunk=max(1, math.ceil(records / FILES)))
    for number, batch in enumerate(batches):
        household = pc.utf8_slice_codeunits(batch.column("user_id"), 0, 9)
        unit = pc.binary_join_element_wise(household, batch.column("variant"), "-")
        table = pa.Table.from_batches([batch]).drop_columns("user_id").append_column("unit", unit)
        mixed = table.take(np.random.default_rng([seed, number]).permutation(len(table)))
        files.append(folder / f"{number:03d}.parquet")
        pq.write_table(mixed, files[-1])
    return files


def sums_apart(trial: fa.Trial, one: fa.Trial) -> float:
    """The largest difference of any sum by arm and group, relative to the sum of sizes over its group."""
    ours, theirs = (cast(Lean, each.tallies).sums for each in (trial, one))
    assert ours is not None
    assert theirs is not None
    if not np.array_equal(ours.records, theirs.records):
        return math.inf
    apart = 0.0
    for name, array in theirs.arrays().items():
        scale = np.maximum(np.abs(array), np.abs(array).mean()) + 1e-300
        apart = max(apart, float(np.max(np.abs(ours.arrays()[name] - array) / scale)))
    return apart


def differences(trial: fa.Trial, one: fa.Trial) -> tuple[float, float]:
    """The largest of the effects and their errors, and of the bootstrap's replicates."""
    from crashing import largest_difference
    from resampling import replicates_of

    effects = largest_difference(trial.effects(), one.effects())
    bootstrap = 0.0
    for estimator in ("ipw", "difference", "regression", "interacted"):
        for outcome in one.plan.measured:
            ours, theirs = (replicates_of(each, estimator, "treatment", outcome).effects for each in (trial, one))
            scale = np.maximum(np.abs(theirs), np.std(theirs, axis=0))
            bootstrap = max(bootstrap, float(np.max(np.abs(ours - theirs) / scale)))
    return effects, bootstrap


def study(records: int, replicates: int, seed: int) -> list[list[str]]:
    """A row for each path."""
    rows, wrong = [], []
    first: list[fa.Trial] = []
    with tempfile.TemporaryDirectory(prefix="foldaway-same-") as folder:
        files = write(Path(folder, "trial"), records, seed)
        for number, (name, fold) in enumerate(PATHS.items()):
            place = Path(folder, str(number))
            place.mkdir()
            trials, seconds = [], []
            for plan in (SUMS, moments_plan(replicates)):
                inner = place / plan.keeps
                inner.mkdir()
                began = time.perf_counter()
                trials.append(fold(Setting(files, plan, KEY, inner)))
                seconds.append(time.perf_counter() - began)
            first = first or trials
            apart = [math.inf] * 3
            if all(trial.counts == one.counts for trial, one in zip(trials, first, strict=True)):
                apart = [sums_apart(trials[0], first[0]), *differences(trials[1], first[1])]
            spent = " and ".join(f"{each:.1f}" for each in seconds)
            print(f"{name}: {trials[0].n:,} records, {spent} s", file=sys.stderr, flush=True)
            if any(trial.n != records for trial in trials) or not max(apart) <= MOST:
                wrong.append(name)
            told = ["–"] * 3 if trials is first else [f"{each:.0e}" for each in apart]
            rows.append([name, f"{trials[0].n:,}", *(f"{each:.1f}" for each in seconds), *told])
    if wrong:
        sys.exit(f"Not the same: {', '.join(wrong)}: {rows}")
    return rows


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, records=5_000_000, replicates=100, seed=1)
    rows = study(options.records, options.replicates, options.seed)
    publish(_findings(rows, options.records, options.replicates), NAME, options)
    if options.write:
        page = findings.PAGES / f"{NAME}.md"
        same = "the seed makes it the same in every run."
        page.write_text(page.read_text("utf-8").replace(same, "the times differ from run to run."), encoding="utf-8")


def _findings(rows: Sequence[Sequence[str]], records: int, replicates: int) -> Findings:
    return Findings(
        "The same everywhere",
        f"""One simulated trial of {records:,} records, in {FILES} Parquet files, is folded by every path into foldaway:
        by one process and by two (`fold_files`), by a query (`fold_query`), on Dask, on Spark as a data frame and as a
        stream of micro-batches, and as messages through a NATS and a Redis server (`foldaway consume`). Its units have
        several records, which are scattered over the files. It is folded twice: with a plan that keeps sums by group,
        with coefficients, and with one that keeps moments and a bootstrap by unit with B = {replicates} replicates.
        Both use one key.

        Each path is compared with one process. The number of records of each arm and group must be the same. “Sums” is
        the largest difference of any number that the state holds, relative to the number itself, or to the mean size of
        its kind where that is larger. “Effects” is the largest difference of any estimate or standard error, over all
        outcomes, estimators and kinds of error, relative to the effect, or to its error where that is larger.
        “Bootstrap” is the largest difference of any single replicate, over all outcomes and estimators, relative to the
        replicate, or to the replicates' spread where that is larger.

        “Seconds” is the time of the whole path, including the start of its processes (for Spark, of Java; for NATS and
        Redis, of the server, and the sending), on two cores that may have had other work. The times show what to
        expect, not which path is faster.""",
        ["path", "records", "seconds, sums", "seconds, moments", "sums", "effects", "bootstrap"],
        rows,
        f"""No path differs from one process by more than {MOST:.0e}. The differences come from the order in which
        floating-point numbers are added.""",
    )
