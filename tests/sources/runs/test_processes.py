"""Files shared out to processes: the same trial as one pass, and errors that reach the caller."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from foldaway.numerics.threads import CORES
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.runs import shares
from foldaway.sources.runs.processes import Workers
from foldaway.sources.runs.shares import shares_of
from trials import make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

N = 6000


@pytest.fixture(scope="module")
def drawn() -> tuple[fa.Plan, pd.DataFrame]:
    return make_trial(8, n=N, arms=3, outcomes=2, covariates=2, levels=3, weighted=True, units=True, shift=1e3)


@pytest.fixture(scope="module")
def folder(drawn: tuple[fa.Plan, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same records in files of several kinds; units in several of them, and one file with many row groups."""
    folder = tmp_path_factory.mktemp("shared out")
    table = pa.Table.from_pandas(drawn[1])
    pq.write_table(table[:3000], folder / "large.parquet", row_group_size=250)
    with pa.ipc.new_file(folder / "batches.arrow", table.schema) as file:
        file.write_table(table[3000:4500], max_chunksize=250)
    pa.csv.write_csv(table[4500:5000], folder / "odd name [1] \n ü.csv")
    pq.write_table(table[5000:5500], folder / "plain.parquet", row_group_size=250)
    (folder / "plain.parquet").rename(os.fsdecode(os.fsencode(folder) + b"/not utf8 \xff.parquet"))
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table[5500:], sink)
    (folder / "packed.csv.gz").write_bytes(gzip.compress(sink.getvalue()))
    return folder


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even these small files."""
    monkeypatch.setattr(shares, "_BYTES_PER_BYTE_OF_STATE", 0)


def everywhere(plan: fa.Plan) -> fa.Plan:
    """The plan without its promise, for files that share units."""
    return msgspec.structs.replace(plan, records_per_unit="many")


def numbers_of(trial: fa.Trial) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows = trial.effects().to_dicts()
    return np.array([value for row in rows for value in row.values() if isinstance(value, float)])


@pytest.mark.parametrize("bootstrap", [None, pytest.param(50, marks=pytest.mark.slow)])
def test_any_split_is_the_fold_in_one_pass(
    drawn: tuple[fa.Plan, pd.DataFrame], folder: Path, bootstrap: int | None
) -> None:
    plan = msgspec.structs.replace(everywhere(drawn[0]), moments={"bootstrap": bootstrap})
    key = None if bootstrap is None else bytes(range(16))
    whole = fa.Trial(plan, key=key)
    whole.fold(drawn[1])
    states = {}
    for processes in (1, 3) if bootstrap is None else (1, 2):
        trial = fa.fold_files(folder / "*", plan, processes=processes, key=key)
        assert trial.counts == whole.counts
        np.testing.assert_allclose(numbers_of(trial), numbers_of(whole), rtol=1e-9, atol=1e-12)
        states[processes] = trial.dumps()
    assert len(set(states.values())) == 1  # to the bit, however many processes


def test_any_number_of_threads_gives_the_same_bits_and_reports_to_the_caller(
    drawn: tuple[fa.Plan, pd.DataFrame], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, states, reports = everywhere(drawn[0]), set(), []
    for threads in (1, 2, 5):
        monkeypatch.setenv(CORES, str(threads))
        used: dict[Any, int] = {}
        listeners: set[int] = set()

        def progress(path: Any, done: int, used: dict[Any, int] = used, listeners: set[int] = listeners) -> None:
            used[path] = done
            listeners.add(threading.get_ident())

        states.add(fa.fold_files(folder / "*", plan, progress=progress).dumps())
        reports.append(used)
        assert listeners == {threading.get_ident()}
    assert len(states) == 1
    assert reports == [reports[0]] * 3


def test_one_large_file_is_shared_out(drawn: tuple[fa.Plan, pd.DataFrame], folder: Path) -> None:
    plan = everywhere(drawn[0])
    for name in ("large.parquet", "batches.arrow"):
        found = shares_of([folder / name], plan)
        assert len(found) > 4
        parts = [piece.part for share in found for piece in share]
        assert [p and p[0] for p in parts[1:]] == [p and p[1] for p in parts[:-1]]  # without gap or overlap
        assert [piece.ends for share in found for piece in share] == [False] * (len(parts) - 1) + [True]


def test_units_together_keep_files_whole(drawn: tuple[fa.Plan, pd.DataFrame], folder: Path, tmp_path: Path) -> None:
    plan, rows = drawn
    assert all(piece.part is None for share in shares_of([folder / "large.parquet"], plan) for piece in share)
    shuffled = rows.sample(frac=1, random_state=1)
    for number, part in enumerate(np.array_split(sorted(rows["unit"].unique()), 4)):
        pq.write_table(
            pa.Table.from_pandas(shuffled[shuffled["unit"].isin(part)]),
            tmp_path / f"{number}.parquet",
            row_group_size=50,
        )
    whole = fa.Trial(plan)
    whole.fold(rows)
    trial = fa.fold_files(str(tmp_path / "*.parquet"), plan, processes=2)
    assert {"CR0", "CR1"} <= {row.se_kind for row in trial.effects()}
    np.testing.assert_allclose(numbers_of(trial), numbers_of(whole), rtol=1e-9, atol=1e-12)


def test_going_on_with_a_trial_leaves_it_as_it_was(drawn: tuple[fa.Plan, pd.DataFrame], folder: Path) -> None:
    plan = msgspec.structs.replace(everywhere(drawn[0]), moments={"bootstrap": 20})
    started = fa.fold_files(folder / "large.parquet", plan, key=bytes(16))
    before = started.dumps()
    both = fa.fold_files([folder / "batches.arrow", folder / "packed.csv.gz"], plan, into=started, processes=2)
    assert started.dumps() == before
    assert both.n == 3000 + 1500 + 500
    assert both.key == started.key
    with pytest.raises(fa.PlanError, match="has its key already"):
        fa.fold_files(folder / "large.parquet", plan, into=started, key=bytes(range(16)))
    with pytest.raises(fa.EndedError, match="without its key"):
        fa.fold_files(folder / "large.parquet", plan, into=fa.Trial.loads(before))


def test_a_refusal_in_a_worker_is_the_refusal_of_one_process(
    drawn: tuple[fa.Plan, pd.DataFrame], folder: Path, tmp_path: Path
) -> None:
    plan = everywhere(drawn[0])
    good = (folder / "odd name [1] \n ü.csv").read_text().splitlines()
    bad = [*good[:17], good[17].replace(good[17].split(",")[1], "SECRET-9"), *good[18:]]
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("\n".join(bad if number == 1 else good))
    told = []
    for processes in (1, 2):
        with pytest.raises(fa.RecordError, match=r"1\.csv, first in line 18: ") as caught:
            fa.fold_files(str(tmp_path / "*.csv"), plan, processes=processes)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "SECRET-9" not in told[0]
    (tmp_path / "1.csv").write_text("\n".join(good))  # or whichever worker comes first would say what it found
    (tmp_path / "0.csv").write_bytes(b"PK\x03\x04")
    with pytest.raises(fa.FoldawayError, match=r"0\.csv"):
        fa.fold_files(str(tmp_path / "*.csv"), plan, processes=2)
    with pytest.raises(fa.SourceError, match="1 or more"):
        fa.fold_files(str(tmp_path / "*.csv"), plan, processes=0)


@pytest.mark.once
def test_a_killed_worker_is_an_error_and_ends_the_others(drawn: tuple[fa.Plan, pd.DataFrame], folder: Path) -> None:
    plan = everywhere(drawn[0])
    found = shares_of([folder / "large.parquet"], plan)
    with Workers(plan, None, ReadOptions(), 2) as workers:
        processes = workers._processes
        states = workers.fold(found * 50, lambda *_: None)
        next(states)
        os.kill(processes[0].pid, signal.SIGKILL)
        with pytest.raises(fa.WorkerError, match=r"SIGKILL.*fewer processes"):
            list(states)
    assert all(process.poll() is not None for process in processes)


@pytest.mark.once
def test_workers_end_when_whoever_started_them_is_killed(folder: Path, drawn: tuple[fa.Plan, pd.DataFrame]) -> None:
    everywhere(drawn[0]).save(plan := folder.parent / "workers-end.toml")
    script = (
        "import sys, foldaway as fa\n"
        "from foldaway.sources.formats.files import ReadOptions\n"
        "from foldaway.sources.runs.processes import Workers\n"
        "with Workers(fa.Plan.load(sys.argv[1]), None, ReadOptions(), 2) as workers:\n"
        "    print(*(process.pid for process in workers._processes), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(plan)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    starter.kill()
    starter.communicate()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(_runs(pid) for pid in pids):
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return "foldaway.sources.runs.processes" in Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return False


def test_a_script_without_a_main_guard_and_the_key_in_no_argument(
    folder: Path, drawn: tuple[fa.Plan, pd.DataFrame], tmp_path: Path
) -> None:
    """The script is not run again by its workers, and the key is neither an argument nor in the environment."""
    msgspec.structs.replace(everywhere(drawn[0]), moments={"bootstrap": 20}, expected_units=320).save(
        tmp_path / "plan.toml"
    )
    (tmp_path / "script.py").write_text(
        "import sys, foldaway as fa\n"
        "print('once', flush=True)\n"
        "trial = fa.fold_files(sys.argv[1], fa.Plan.load('plan.toml'), processes=2, key=b'sixteen-secret-b')\n"
        "print(trial.n)\n"
    )
    words = [sys.executable, "script.py", str(folder / "large.parquet")]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    seen: set[bytes] = set()

    def watch() -> None:
        while process.poll() is None:
            for child in Path("/proc").glob("[0-9]*"):
                try:
                    if b"foldaway.sources.runs.processes" in (line := (child / "cmdline").read_bytes()):
                        seen.add(line + (child / "environ").read_bytes())
                except OSError:
                    continue
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate(timeout=60)
    watcher.join()
    assert out.split() == ["once", "3000"]
    assert seen
    assert not any(b"sixteen-secret-b" in text or b"sixteen-secret-b".hex().encode() in text for text in seen)


def test_progress_adds_up_to_the_files(drawn: tuple[fa.Plan, pd.DataFrame], folder: Path) -> None:
    plan = everywhere(drawn[0])
    for processes in (1, 2):
        used: dict[Any, int] = {}
        fa.fold_files(folder / "*", plan, processes=processes, progress=used.__setitem__)
        for path in folder.iterdir():
            assert used[path] == pytest.approx(path.stat().st_size, rel=0.02)
