"""Dask: any partitioning on any scheduler gives the one-pass trial."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
import yaml  # type: ignore[import-untyped]
from distributed import wait

import foldaway as fa
from foldaway.engines import dask as fold_dask
from memory_scan import Marks, scan_files
from resampling import KEY, assert_same_replicates, folded, of_units, with_bootstrap
from trials import make_trial


def frame(rows: pd.DataFrame, **options: Any) -> Any:
    return dd.from_pandas(rows, **options)  # type: ignore[no-untyped-call]


def assert_same_effects(one: fa.Trial, other: fa.Trial) -> None:
    ours, theirs = (trial.effects().to_pandas() for trial in (one, other))
    assert len(ours) == len(theirs) > 0
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize("partitions", [1, 3, 20])
def test_any_partitioning_gives_the_one_pass_bootstrap(scheduler: str, partitions: int) -> None:
    plan, rows = of_units()
    mixed = rows.sample(frac=1, random_state=partitions)
    with dask.config.set(scheduler=scheduler):
        trial = fold_dask.fold(frame(mixed, npartitions=partitions, sort=False), plan, key=KEY)
    assert_same_replicates(trial, folded(plan, rows))
    assert trial.key == KEY


def test_other_processes_give_it_too() -> None:
    plan, rows = of_units()
    with dask.config.set(scheduler="processes", num_workers=2):
        trial = fold_dask.fold(frame(rows, npartitions=2), plan, key=KEY)
    assert_same_replicates(trial, folded(plan, rows))


@contextmanager
def cluster_at(folder: Path, *, spilling: bool, **settings: Any) -> Iterator[Any]:
    """A client of a cluster whose workers write records to the folder when memory runs short, or never."""
    from distributed import Client, LocalCluster

    settings |= {"threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1", "protocol": "tcp"}
    memory = {} if spilling else dict.fromkeys(["target", "spill"], False)
    with (
        dask.config.set({f"distributed.worker.memory.{name}": value for name, value in memory.items()}),
        LocalCluster(local_directory=str(folder), **settings) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        yield client


def marked(count: int) -> tuple[fa.Plan, pd.DataFrame, Marks]:
    """Records whose identifiers and outcomes can be found again."""
    marks = Marks(count)
    plan, rows = make_trial(3, n=count, units=True)
    plan = with_bootstrap(plan, 50, records_per_unit="many")
    rows["unit"] = [marks.identifier(i) for i in range(count)]
    rows["y0"] = [marks.outcome(i) for i in range(count)]
    return plan, rows, marks


@pytest.mark.slow
def test_a_cluster_gives_it_too_and_neither_writes_nor_logs_a_record(tmp_path: Path) -> None:
    plan, rows, marks = marked(400)
    faulty = rows.assign(y0=rows["y0"].mask(rows.index == 17))
    with cluster_at(tmp_path, spilling=False, n_workers=2) as client:
        trial = fold_dask.fold(frame(rows, npartitions=12), plan, key=KEY)
        assert_same_effects(trial, folded(plan, rows))
        with pytest.raises(fa.RecordError, match="1 of 400 records is faulty"):
            fold_dask.fold(frame(faulty, npartitions=3), plan, key=KEY)
        logs = repr(client.get_worker_logs()) + repr(client.cluster.get_logs())
        assert not marks.find(logs.encode())
        assert not scan_files([tmp_path], marks)


def test_a_cluster_that_would_write_records_to_its_disks_is_refused(tmp_path: Path) -> None:
    plan, rows, marks = marked(4000)
    # Memory for nothing: whatever a worker holds goes to its disk, as it does with more memory and more records.
    with (
        dask.config.set({"distributed.worker.memory.pause": False}),
        cluster_at(tmp_path, spilling=True, n_workers=1, processes=False, memory_limit="1kB") as client,
    ):
        ddf = frame(rows, npartitions=4)
        with pytest.raises(fa.PlanError, match="1 of 1 workers of the Dask cluster write records") as caught:
            fold_dask.fold(ddf, plan, key=KEY)
        assert not scan_files([tmp_path], marks)
        assert yaml.safe_load(str(caught.value).split("\n\n")[1]) == {
            "distributed": {"worker": {"memory": {"target": False, "spill": False}}}
        }
        with dask.config.set(scheduler="threads"):  # the cluster is there, but does not run it
            assert fold_dask.fold(ddf, plan, key=KEY).n == 4000
        assert not scan_files([tmp_path], marks)
        held = client.persist(ddf)
        wait(held)  # type: ignore[no-untyped-call]
        assert len(scan_files([tmp_path], marks).identifiers) == 4000  # it would have, and the search finds it


def test_default_settings_are_refused(tmp_path: Path) -> None:
    plan, rows, _ = marked(40)
    with (
        cluster_at(tmp_path, spilling=True, n_workers=1, processes=False),
        pytest.raises(fa.PlanError, match="target: false"),
    ):
        fold_dask.fold(frame(rows, npartitions=1), plan, key=KEY)


def test_a_worker_that_joins_later_and_would_write_has_its_partitions_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rows, _ = marked(40)
    monkeypatch.setattr(fold_dask, "require_no_spilling", lambda _: None)  # nobody was there to be asked
    with (
        cluster_at(tmp_path, spilling=True, n_workers=1, processes=False),
        pytest.raises(fa.RecordError, match="target: false"),
    ):
        fold_dask.fold(frame(rows, npartitions=2), plan, key=KEY)


@pytest.mark.parametrize("together", [False, True])
def test_whole_units_are_brought_together_unless_they_are(together: bool) -> None:
    plan, rows = make_trial(5, n=500, units=True)
    assert plan.whole_units
    mixed = rows.sort_values("unit") if together else rows.sample(frac=1, random_state=2)
    ddf = frame(mixed.set_index("unit", drop=False) if together else mixed, npartitions=4, sort=together)
    trial = fold_dask.fold(ddf.reset_index(drop=True), plan, units_together=together)
    whole = fa.Trial(plan)
    whole.fold(rows)
    assert len(whole.effects().filter(se_kind="CR1"))
    assert_same_effects(trial, whole)


def test_only_the_plans_columns_are_read(tmp_path: Path) -> None:
    plan, rows = make_trial(5, n=200)
    rows["unreadable"] = "x"
    rows.to_parquet(tmp_path / "rows.parquet")
    ddf = dd.read_parquet(tmp_path)
    assert "unreadable" in ddf.columns
    assert fold_dask.fold(ddf, plan).n == 200
    with pytest.raises(fa.RecordError, match="no column 'y0'"):
        fold_dask.fold(ddf.drop(columns="y0"), plan)


def test_what_is_no_data_frame_is_refused() -> None:
    plan, rows = make_trial(5)
    with pytest.raises(fa.SourceError, match="not DataFrame"):
        fold_dask.fold(rows, plan)


def test_an_error_in_the_data_frame_itself_does_not_quote_a_record() -> None:
    plan, rows = make_trial(5, n=100)
    secret = "Kilimanjaro-4711"
    ddf = frame(rows.assign(y0=secret), npartitions=2)
    with pytest.raises(fa.SourceError, match="ValueError") as caught:
        fold_dask.fold(ddf.assign(y0=ddf["y0"].astype(float)), plan)
    assert secret not in str(caught.value)
    assert caught.value.__context__ is None


def test_an_empty_data_frame_gives_an_empty_trial() -> None:
    plan, rows = make_trial(5)
    assert fold_dask.fold(frame(rows[:0], npartitions=1), plan).n == 0
