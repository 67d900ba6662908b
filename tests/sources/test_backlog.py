"""A backlog of files: every file counted once whatever is killed, and deleted only when its records are safe."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import foldaway as fa
from foldaway.sources.backlog import Backlog, Outcome
from foldaway.sources.folding import Options
from measured import measured

FILES = 24
PLAN = fa.Plan(name="backlog", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["low", "high"], cohort=40)

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


def write(folder: Path, number: int, records: int = 20) -> Path:
    """A file whose first record of each arm carries 4 to the power of its number, so that sums count files."""
    column, power = divmod(number, 16)
    lines = ["group,low,high"]
    for record in range(records):
        value = 4**power if record < 2 else 0
        lines.append(f"{'ab'[record % 2]},{value if column == 0 else 0},{value if column == 1 else 0}")
    path = folder / f"{number:03d} ü [x].csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def counted(state: Path, plan: fa.Plan = PLAN) -> list[int]:
    """How often each file is in the state."""
    trial = fa.Trial.load(state, plan)
    times = []
    for outcome in plan.outcomes:
        row = trial.effects().filter(outcome=outcome, estimator="difference", se_kind="classical")[0]
        total = round(row.control_level * trial.counts["a"])
        times += [total // 4**power % 4 for power in range(16)]
    return times


def fold(folder: Path, state: Path, *, resume: bool = True, delete: bool = False, processes: int = 1) -> Outcome:
    with Backlog(PLAN, state, resume=resume, delete_after=delete) as backlog:
        return backlog.fold(backlog.find([str(folder / "*.csv")]), Options(), processes=processes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number in range(4):
        write(folder, number)
    return folder


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_at_any_moment_every_file_counts_once(tmp_path: Path, processes: int) -> None:
    """Kills fall anywhere between the first import and the last delete; what is gone from disk is in the state."""
    folder, state = tmp_path / "inbox", tmp_path / "state"
    folder.mkdir()
    for number in range(FILES):
        write(folder, number)
    PLAN.save(tmp_path / "plan.toml")
    words = [sys.executable, "-m", "foldaway", "run", str(tmp_path / "plan.toml"), str(folder / "*.csv")]
    words += ["--save", str(state), "--resume", "--delete-after", "--processes", str(processes), "--json"]
    rng = random.Random(processes)
    kills = 0
    for _ in range(60):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ})
        wait_for_work(process, folder, state, rng)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        check_nothing_is_lost(folder, state)
        if kills >= 8:
            break
        if process.returncode == 0:  # all folded: a further backlog comes in
            break
    done = subprocess.run(words, capture_output=True, env={**os.environ, **measured()}, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert counted(state)[:FILES] == [1] * FILES
    assert list(folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inbox", "plan.toml", "state"]
    assert kills >= 3


def wait_for_work(process: subprocess.Popen[bytes], folder: Path, state: Path, rng: random.Random) -> None:
    """Until the run has changed something on the disk, and then a random moment more."""
    before = (len(list(folder.iterdir())), state.stat().st_mtime_ns if state.exists() else 0)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        now = (len(list(folder.iterdir())), state.stat().st_mtime_ns if state.exists() else 0)
        if now != before:
            break
        time.sleep(0.0005)
    time.sleep(rng.expovariate(200))


def check_nothing_is_lost(folder: Path, state: Path) -> None:
    """A file that is gone is in the state; no file is in it twice."""
    there = {int(path.name[:3]) for path in folder.iterdir()}
    times = counted(state)[:FILES] if state.exists() else [0] * FILES
    assert all(times[number] == 1 for number in range(FILES) if number not in there)
    assert max(times) <= 1
