"""Does the same trial give the same numbers, whatever engine or stream it comes through?

One simulated trial is folded by every path there is; effects, errors and every replicate of the bootstrap by unit are
compared with those of one process. A path is a function, entered into `PATHS` by the decorator `path`.
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

# One thread for linear algebra, two processes at most: every path has the same two cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import foldaway as fa  # noqa: E402
from foldaway.simulation.datasets import checkout  # noqa: E402
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
        plan: The plan: several records to a unit, and a bootstrap by unit.
        key: The bootstrap's key.
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
    query.close()
    sparks.remove()
    return spark.load(store, setting.plan)


@path("NATS")
def over_nats(setting: Setting) -> fa.Trial:
    """The records as messages of a NATS server, consumed as `foldaway consume` does."""
    return through_nats(setting.batches(), setting.plan, setting.key)


@path("Redis")
def over_redis(setting: Setting) -> fa.Trial:
    """The same with a Redis server."""
    return through_redis(setting.batches(), setting.plan, setting.key)


def plan_of(replicates: int) -> fa.Plan:
    """The plan of all paths."""
    return fa.Plan(
        name="same-everywhere",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue", "converted"],
        covariates=["revenue_before", "country"],
        levels={"country": ["de", "fr", "us"]},
        unit="unit",
        keep="moments",
        bootstrap=fa.Bootstrap(replicates),
        privacy=fa.Privacy(remainder="include"),
    )


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


def differences(trial: fa.Trial, one: fa.Trial) -> tuple[float, float]:
    """The largest of the effects and their errors, and of the bootstrap's replicates."""
    from crashing import largest_difference
    from resampling import replicates_of

    effects = largest_difference(trial.effects(), one.effects())
    bootstrap = 0.0
    for estimator in ("ipw", "difference", "regression", "interacted"):
        for outcome in one.plan.outcomes:
            ours, theirs = (replicates_of(each, estimator, "treatment", outcome).effects for each in (trial, one))
            scale = np.maximum(np.abs(theirs), np.std(theirs, axis=0))
            bootstrap = max(bootstrap, float(np.max(np.abs(ours - theirs) / scale)))
    return effects, bootstrap


def study(records: int, replicates: int, seed: int) -> list[list[str]]:
    """A row for each path."""
    rows, wrong, one = [], [], None
    with tempfile.TemporaryDirectory(prefix="foldaway-same-") as folder:
        files = write(Path(folder, "trial"), records, seed)
        for number, (name, fold) in enumerate(PATHS.items()):
            place = Path(folder, str(number))
            place.mkdir()
            began = time.perf_counter()
            trial = fold(Setting(files, plan_of(replicates), KEY, place))
            seconds = time.perf_counter() - began
            one = one or trial
            effects, bootstrap = differences(trial, one) if trial.counts == one.counts else (math.inf, math.inf)
            print(f"{name}: {trial.n:,} records, {seconds:.1f} s", file=sys.stderr, flush=True)
            if trial.n != records or not max(effects, bootstrap) <= MOST:
                wrong.append(name)
            apart = ["–", "–"] if trial is one else [f"{effects:.0e}", f"{bootstrap:.0e}"]
            rows.append([name, f"{trial.n:,}", f"{seconds:.1f}", *apart])
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
        several records, which lie apart; the bootstrap by unit has B = {replicates} replicates, under one key.

        What is compared, each path with one process: the number of records of each arm, which must be the same; and
        the effects and the bootstrap, as follows. Effects: every estimate and every standard error, over all outcomes,
        estimators and kinds of error; the largest difference, relative to the effect, or to its error where that is
        larger. Bootstrap: every single replicate, over all outcomes and estimators; the largest difference, relative
        to the replicate, or to the replicates' spread where that is larger.

        Seconds: of the whole path, with the start of its processes (for Spark, of Java; for NATS and Redis, of the
        server, and with the sending), on two cores that may have had other work; they show what to expect, not who is
        faster.""",
        ["path", "records", "seconds", "effects", "bootstrap"],
        rows,
        f"""No path differs from one process by more than {MOST:.0e}; what there is comes from the order in which
        floating point numbers are added.""",
    )
