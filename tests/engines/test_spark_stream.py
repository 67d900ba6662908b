"""Streams on Spark: every record once and a cohort between two states, whatever is stopped, broken off or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
import spark_stream_driver
import sparks
from foldaway.account.account import Account, Durable
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.effects.door import TOLD
from foldaway.engines import spark
from foldaway.engines.spark.stream import StreamFold
from foldaway.keeping.saved import Saved, StreamPositions, load
from memory_scan import Marks, scan_files
from plans import replaced
from resampling import KEY, assert_same_replicates, folded, of_units
from trials import make_trial

pytestmark = pytest.mark.once

AVAILABLE = {"availableNow": True}
ROOT = Path(__file__).parents[2]


def planned(cohort: int = 20, **changes: Any) -> tuple[fa.Plan, pd.DataFrame]:
    """A cohort of units, of which every 100 records have 23 or more."""
    plan, rows = of_units()
    return replaced(plan, cohort=cohort, **changes), rows


class Source:
    """A folder to which files are added, and a stream of them, one file to a micro-batch."""

    def __init__(self, session: Any, folder: Path, rows: pd.DataFrame) -> None:
        self.session = session
        self.folder = folder
        self.rows = rows
        self.begin = 0
        self.started = time.time() - 24 * 3600
        folder.mkdir()

    def add(self, *sizes: int) -> None:
        for size in sizes:
            draft = self.folder / f"_{self.begin}"  # which Spark does not look at
            self.rows[self.begin : self.begin + size].to_parquet(draft)
            written = self.started + self.begin  # Spark reads files in the order of their times, whatever their names
            os.utime(draft, (written, written))
            draft.rename(self.folder / f"{self.begin:05d}.parquet")
            self.begin += size

    @property
    def added(self) -> pd.DataFrame:
        return self.rows[: self.begin]

    def stream(self) -> Any:
        schema = self.session.read.parquet(str(self.folder)).schema
        return self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Saved]:
    """Every state that is written."""
    states: list[Saved] = []
    write = StreamFile.write

    def noted(self: StreamFile, *what: Any) -> Durable[fa.Trial, StreamPositions]:
        durable = write(self, *what)
        states.append(load(self.path, KEY))
        return durable

    monkeypatch.setattr(StreamFile, "write", noted)
    return states


def test_what_is_short_of_a_cohort_waits_in_memory_and_is_read_again(
    session: Any, tmp_path: Path, written: list[Saved]
) -> None:
    plan, rows = planned(cohort=70)
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(200, 200, 230)
    query = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
    query.awaitTermination()
    assert query.pending == 230
    assert spark.load(store, plan, key=KEY).n == 400
    assert query.isActive is False  # all that Spark's query has is there

    # Another program goes on, which knows nothing but the store. The last batch is read again, with all that has come.
    source.add(200)
    again = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
    again.awaitTermination()
    assert spark.load(store, plan, key=KEY).n == 830
    assert again.pending == 0

    source.add(70)
    last = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
    last.awaitTermination()
    assert spark.load(store, plan, key=KEY).n == 830
    trial = last.end()  # with all that has come
    assert trial.n == len(source.added) == 900
    assert_same_replicates(trial, folded(plan, source.added))
    assert [fa.Trial.loads(stored.state).n for stored in written if stored.state] == [400, 830]
    assert [stored.final is not None for stored in written] == [False, False, True]


def test_a_batch_that_is_stored_but_that_spark_took_no_note_of_counts_once(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rows = planned()
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(300, 300, 300)
    write = StreamFile.write

    def broken_off(self: StreamFile, *what: Any) -> Durable[fa.Trial, StreamPositions]:
        durable = write(self, *what)
        if durable.reached.places == {"": (1,)}:
            raise RuntimeError("broken off")
        return durable

    with monkeypatch.context() as patched:
        patched.setattr(StreamFile, "write", broken_off)
        query = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
        with pytest.raises(Exception, match="broken off"):
            query.awaitTermination()
    assert spark.load(store, key=KEY).n == 600
    query = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
    query.awaitTermination()
    assert_same_replicates(spark.load(store, plan, key=KEY), folded(plan, source.added))


@pytest.mark.slow
def test_a_killed_driver_goes_on_from_its_checkpoint_and_counts_once(tmp_path: Path) -> None:
    sparks.require_java()
    plan, rows = planned(cohort=15)
    source = Source(None, tmp_path / "in", rows)
    source.add(*[100] * 9)
    plan.save(tmp_path / "plan.toml")
    store = tmp_path / "store"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}

    def driver(mode: str) -> subprocess.Popen[bytes]:
        words = [str(source.folder), str(store), str(tmp_path / "plan.toml"), KEY.hex(), mode]
        program = [sys.executable, str(Path(spark_stream_driver.__file__)), *words]
        return subprocess.Popen(program, env=environment, start_new_session=True, stderr=subprocess.PIPE)

    first = driver("forever")
    deadline = time.monotonic() + 240
    while not (store / "state").exists() or spark.load(store, key=KEY).n < 200:
        assert first.poll() is None, first.communicate()[1].decode()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)  # Python and Java, as when the machine is lost
    first.communicate()
    half = spark.load(store, key=KEY).n
    assert 200 <= half < len(rows)

    second = driver("to-the-end")
    _, said = second.communicate(timeout=300)
    assert second.returncode == 0, said.decode()[-2000:]
    trial = fa.Trial.loads((store / "final").read_bytes(), plan)
    assert trial.n == len(rows)
    assert_same_replicates(trial, folded(plan, rows))


def test_neither_store_nor_checkpoint_holds_a_record(session: Any, tmp_path: Path) -> None:
    marks = Marks(200)
    plan, rows = planned()
    rows = rows[:200].assign(unit=[marks.identifier(i) for i in range(200)], y0=[marks.outcome(i) for i in range(200)])
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(200)
    spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE).awaitTermination()
    assert spark.load(store, key=KEY).n == 200
    assert (store / "checkpoint" / "commits" / "0").exists()
    assert not scan_files([store, sparks.folder()], marks)
    assert scan_files([source.folder], marks)
    for path in store.rglob("*"):
        assert not path.is_file() or (KEY not in path.read_bytes() and KEY.hex().encode() not in path.read_bytes())


def test_two_drivers_cannot_have_one_store(session: Any, tmp_path: Path) -> None:
    plan, rows = planned()
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(300)
    with StreamFile(store, plan, "s"), pytest.raises(fa.StateError, match="another program is writing to"):
        spark.fold_stream(source.stream(), plan, store=store, key=KEY)
    first = spark.fold_stream(source.stream(), plan, store=store, key=KEY)
    try:
        first.processAllAvailable()
        before = sorted(path.name for path in (store / "checkpoint").rglob("*"))
        with pytest.raises(fa.StateError, match="another program is writing to"):
            spark.fold_stream(source.stream(), plan, store=store, key=KEY)
        assert sorted(path.name for path in (store / "checkpoint").rglob("*")) == before  # not taken back
    finally:
        first.stop()
    with StreamFile(store, plan, "s"):  # another process could go on
        pass
    with pytest.raises(fa.StateError, match="start it again"):
        first.end(without_effects=True)
    second = spark.fold_stream(source.stream(), plan, store=store, key=KEY)
    assert second.end(without_effects=True).n == 300


def test_of_a_trial_that_has_ended_rounded_effects_are_left_and_it_takes_no_more(session: Any, tmp_path: Path) -> None:
    plan, rows = planned(covariates=[])
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(600, 30)
    query = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
    query.awaitTermination()
    assert query.pending == 30
    trial = query.end()
    assert query.end() is trial
    assert trial.ended
    assert trial.n == 630
    assert_same_replicates(trial, folded(plan, source.added))
    stored = load(store / STATE)
    assert stored.state == b""
    assert stored.final is not None
    assert stored.final.effects == folded(plan, source.added).read(TOLD).to_json()
    with pytest.raises(fa.EndedError, match="foldaway effects"):
        spark.load(store, plan)
    source.add(200)
    with pytest.raises(fa.EndedError, match="takes no more records"):
        spark.fold_stream(source.stream(), plan, store=store, key=KEY)


def test_only_its_owner_can_look_into_the_store(session: Any, tmp_path: Path) -> None:
    plan, rows = planned()
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(150)
    before = os.umask(0)
    try:
        query = spark.fold_stream(source.stream(), plan, store=store, key=KEY, trigger=AVAILABLE)
        query.awaitTermination()
    finally:
        os.umask(before)
    assert store.stat().st_mode & 0o777 == 0o700
    assert (store / "state").stat().st_mode & 0o777 == 0o600


def test_a_fault_is_raised_as_what_it_is_and_nothing_is_stored(session: Any, tmp_path: Path) -> None:
    plan, rows = planned()
    source, store = (
        Source(session, tmp_path / "in", rows.assign(y0=rows["y0"].mask(rows.index == 5))),
        tmp_path / "store",
    )
    source.add(150)
    query = spark.fold_stream(source.stream(), plan, store=store, key=KEY)
    with pytest.raises(fa.RecordError, match="1 of 150 records is faulty"):
        query.awaitTermination()
    with pytest.raises(fa.RecordError, match="1 of 150 records is faulty"):
        query.processAllAvailable()
    with pytest.raises(fa.StateError, match="holds no state yet"):
        spark.load(store, key=KEY)


def test_what_cannot_work_is_refused_before_anything_runs(session: Any, tmp_path: Path) -> None:
    plan, rows = planned()
    source, store = Source(session, tmp_path / "in", rows), tmp_path / "store"
    source.add(100)
    stream = source.stream()
    with pytest.raises(fa.SourceError, match=r"use spark\.fold"):
        spark.fold_stream(session.read.parquet(str(source.folder)), plan, store=store, key=KEY)
    with pytest.raises(fa.PlanError, match="records_per_unit"):
        spark.fold_stream(stream, make_trial(3, units=True)[0], store=store)
    with pytest.raises(fa.RecordError, match="no column 'y0'"):
        spark.fold_stream(stream.drop("y0"), plan, store=store, key=KEY)

    trial = folded(plan, rows)
    store.mkdir(exist_ok=True)
    trial.save(store / STATE, positions=StreamPositions("a Spark stream", "a-query", {"": (7,)}))
    with pytest.raises(fa.StateError, match="is empty, and"):
        spark.fold_stream(stream, plan, store=store, key=KEY)
    (store / "checkpoint").mkdir()
    (store / "checkpoint" / "metadata").write_text('{"id":"another"}')
    with pytest.raises(fa.StateError, match="is of another query"):
        spark.fold_stream(stream, plan, store=store, key=KEY)
    (store / "checkpoint" / "metadata").write_text('{"id":"a-query"}')
    with pytest.raises(fa.StateError, match="no longer holds batch 7"):
        spark.fold_stream(stream, plan, store=store, key=KEY)
    with pytest.raises(fa.StateError, match="another key"):
        spark.fold_stream(stream, plan, store=store, key=KEY[::-1])
    with pytest.raises(fa.StateError, match="another plan"):
        spark.fold_stream(stream, replaced(plan, cohort=3), store=store, key=KEY)
    with StreamFile(store, plan, "ORDERS"):  # whatever was refused has let go of it
        trial.save(store / STATE, positions=StreamPositions("ORDERS", "", {"": (7,)}))
    with pytest.raises(fa.SourceError, match=r"belongs to another stream \(ORDERS\)"):
        spark.fold_stream(stream, plan, store=store, key=KEY)
    assert not session.streams.active


@pytest.mark.parametrize("most", [100, 2])
def test_the_first_write_waits_for_coefficients_while_the_checkpoint_allows(most: int, tmp_path: Path) -> None:
    columns = [f"x{i}" for i in range(30)]
    names: dict[str, Any] = {"arm": "g", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"], "covariates": columns}
    plan = replaced(fa.Plan(name="wide", **names), cohort=20)
    rng = np.random.default_rng(1)
    with StreamFile(tmp_path, plan, "a Spark stream", key=KEY) as opened:
        batches = StreamFold(opened, Account(opened), KEY, most)
        waits = []
        for number in range(5):
            rows = pd.DataFrame(rng.normal(size=(40, 31)), columns=[*columns, "y"]).assign(g=["a", "b"] * 20)
            batches._take(folded(plan, rows), "q", number)
            waits.append(batches.pending)
    adjusted = all(row.reliable for row in spark.load(tmp_path, key=KEY).effects().filter(estimator="adjusted"))
    assert (waits, adjusted) == (([40, 80, 120, 0, 0], True) if most == 100 else ([40, 0, 0, 0, 0], False))
