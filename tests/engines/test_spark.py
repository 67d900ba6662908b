"""Spark: any partitioning gives the one-pass trial, killed tasks count once, and Spark's files hold no record."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import foldaway as fa
import sparks
from foldaway.engines import spark
from memory_scan import Marks, scan_files
from resampling import assert_same_replicates, folded, of_units, with_bootstrap
from sizes import mostly_slow
from trials import make_trial

# Bytes that are nowhere by chance, as in Spark's files.
KEY = bytes.fromhex("5ac1e7934b20d8f6a19c03be47d5728e")
FORMS = (KEY, KEY.hex().encode(), KEY.hex().upper().encode(), repr(KEY)[2:-1].encode())


def frame(session: Any, rows: pd.DataFrame, folder: Path, files: int = 1) -> Any:
    """The rows as a data frame that is read from so many files."""
    for i in range(files):
        rows[i::files].to_parquet(folder / f"{i}.parquet", compression=None)
    return session.read.parquet(str(folder))


def assert_same_effects(one: fa.Trial, other: fa.Trial) -> None:
    ours, theirs = (trial.effects().to_pandas() for trial in (one, other))
    assert len(ours) == len(theirs) > 0
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9, atol=1e-12)


def holding_key(folder: Path) -> list[Path]:
    """The files in which the key is, in any form."""
    return [path for path in folder.rglob("*") if any(form in _content(path) for form in FORMS)]


def _content(path: Path) -> bytes:
    """What a file holds; nothing, once Spark has removed it."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize("partitions", mostly_slow([1, 7], 7))
def test_any_partitioning_gives_the_one_pass_bootstrap(session: Any, tmp_path: Path, partitions: int) -> None:
    plan, rows = of_units()
    df = frame(session, rows, tmp_path).repartition(partitions)
    trial = spark.fold(df, plan, key=KEY)
    assert_same_replicates(trial, folded(plan, rows, key=KEY))
    assert trial.key == KEY


def test_a_tree_of_several_levels_gives_it_too(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from foldaway.engines.spark import batch as spark_batch

    assert list(spark_batch._widths(100)) == [100, 13, 2]
    assert list(spark_batch._widths(2)) == [2]
    plan, rows = of_units()
    monkeypatch.setattr(spark_batch, "_widths", lambda _: [3, 2])
    trial = spark.fold(frame(session, rows, tmp_path).repartition(5), plan, key=KEY)
    assert_same_replicates(trial, folded(plan, rows, key=KEY))


@pytest.mark.once
@pytest.mark.slow
def test_a_killed_task_is_tried_again_and_counts_once(session: Any, tmp_path: Path) -> None:
    plan, rows = of_units()
    (tmp_path / "rows").mkdir()
    tried = tmp_path / "tried"
    tried.mkdir()

    def killed_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        (tried / f"{task.partitionId()}-{task.attemptNumber()}").touch()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if task.partitionId() == 1 and task.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(half)

    df = frame(session, rows, tmp_path / "rows").repartition(3)
    trial = spark.fold(df.mapInArrow(killed_once, df.schema), plan, key=KEY)
    assert {path.name for path in tried.iterdir()} == {"0-0", "1-0", "1-1", "2-0"}
    assert trial.n == len(rows)
    assert_same_replicates(trial, folded(plan, rows, key=KEY))


def test_sparks_files_hold_neither_key_nor_record_nor_the_tallies_of_few(session: Any, tmp_path: Path) -> None:
    """Nothing is compressed, every closure goes through a file, and the event log is on: see `sparks.SETTINGS`."""
    marks = Marks(40)
    plan, rows = make_trial(3, n=40, units=True)
    plan = with_bootstrap(plan, 20, records_per_unit="many")
    rows["unit"] = [marks.identifier(i) for i in range(40)]
    rows["y0"] = [marks.outcome(i) for i in range(40)]
    df = frame(session, rows, tmp_path, files=40)  # a partition of one or two records has a state that tells them
    trial = spark.fold(df, plan, key=KEY)
    assert trial.n == 40
    written = [path for path in sparks.folder().rglob("*") if _content(path)]
    assert any(path.name.startswith("shuffle_") for path in written)
    assert any("events" in str(path) and b"foldaway.secret" in _content(path) for path in written)
    assert not scan_files([sparks.folder()], marks)
    assert not holding_key(sparks.folder())


def test_the_search_does_find_what_spark_writes(session: Any, tmp_path: Path) -> None:
    """What happens without our care: a key in a closure, and records in a shuffle, lie in files."""
    marks, key = Marks(40), KEY
    rows = pd.DataFrame({"unit": [marks.identifier(i) for i in range(40)], "y": [marks.outcome(i) for i in range(40)]})

    def careless(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert key
            yield batch

    df = frame(session, rows, tmp_path)
    try:
        df.repartition(3, "unit").mapInArrow(careless, df.schema).collect()
        hits = scan_files([sparks.folder()], marks)
        assert len(hits.identifiers) == len(hits.outcomes) == 40
        assert holding_key(sparks.folder())
    finally:
        for path in holding_key(sparks.folder()):
            path.unlink()


def test_an_event_log_that_would_show_the_key_is_refused(session: Any, tmp_path: Path) -> None:
    from foldaway.engines.spark import batch as spark_batch

    class Context:
        def getConf(self) -> dict[str, str]:
            return {"spark.eventLog.enabled": "true", "spark.redaction.regex": "password"}

    with pytest.raises(fa.SourceError, match="redaction"), spark_batch._travelling(Context()):  # type: ignore[arg-type]
        pass
    assert session.sparkContext.getLocalProperty(spark_batch.PROPERTY) is None


def test_whole_units_in_one_partition_need_no_shuffle(session: Any, tmp_path: Path) -> None:
    plan, rows = make_trial(5, n=300, units=True)
    df = frame(session, rows, tmp_path).repartition(4, "unit")
    assert_same_effects(spark.fold(df, plan, units_together=True), folded_whole(plan, rows))
    with pytest.raises(fa.PlanError, match=r"spark\.io\.encryption\.enabled"):
        spark.fold(df, plan)


def folded_whole(plan: fa.Plan, rows: pd.DataFrame) -> fa.Trial:
    trial = fa.Trial(plan)
    trial.fold(rows)
    assert len(trial.effects().filter(se_kind="CR1"))
    return trial


def test_faults_come_as_counts_over_all_partitions_without_a_value(session: Any, tmp_path: Path) -> None:
    plan, rows = make_trial(5, n=300)
    secret = "Kilimanjaro-4711"
    rows.loc[[3, 200], "group"] = secret
    df = frame(session, rows, tmp_path).repartition(4)
    with pytest.raises(fa.RecordError, match=r"(?s)2 of 300 records are faulty.*group: 2 unknown arm") as caught:
        spark.fold(df, plan)
    assert secret not in str(caught.value)
    assert caught.value.__context__ is None


def test_an_error_in_the_data_frame_itself_does_not_quote_a_record(
    session: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan, rows = make_trial(5, n=60)
    secret = "Kilimanjaro-4711"
    df = frame(session, rows.assign(y0=secret), tmp_path)
    with pytest.raises(fa.SourceError, match="CAST_INVALID_INPUT") as caught:
        spark.fold(df.withColumn("y0", df["y0"].cast("double")), plan)
    assert secret not in str(caught.value)
    assert caught.value.__context__ is None
    assert secret not in "".join(capfd.readouterr())


def test_what_cannot_work_is_refused_before_anything_runs(session: Any, tmp_path: Path) -> None:
    plan, rows = make_trial(5, n=60)
    df = frame(session, rows, tmp_path)
    with pytest.raises(fa.RecordError, match="no column 'x0'"):
        spark.fold(df.drop("x0"), plan)
    with pytest.raises(fa.RecordError, match="more than one column 'x0'"):
        spark.fold(df.select("*", "x0"), plan)
    with pytest.raises(fa.RecordError, match="'x0' is of type date"):
        spark.fold(df.selectExpr("y0", "group", "current_date() as x0"), plan)
    with pytest.raises(fa.SourceError, match="not DataFrame"):
        spark.fold(rows, plan)  # type: ignore[arg-type]
    stream = session.readStream.format("rate").load()
    with pytest.raises(fa.SourceError, match="fold_stream"):
        spark.fold(stream, plan)


def test_no_records_give_an_empty_trial(session: Any, tmp_path: Path) -> None:
    plan, rows = make_trial(5, n=60)
    assert spark.fold(frame(session, rows, tmp_path).where("x0 > 1e9"), plan).n == 0
