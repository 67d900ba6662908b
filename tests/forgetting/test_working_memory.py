"""What the linear algebra libraries keep of the last rows, before they are overwritten and after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.forgetting.harden import environment
from foldaway.numerics import linalg
from foldaway.tallies import group_moments
from foldaway.tallies.moments import frame
from memory_scan import count_numbers
from sizes import mostly_slow

SUMS = fa.Plan(name="rows", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"], unit="u")
MOMENTS = msgspec.structs.replace(SUMS, moments={})

# Forks a process for each line it reads, which folds the batches of a file and waits; it has no other way to know their
# rows.
CHILD = """
import json, os, signal, sys
import pyarrow as pa
import foldaway as fa
from foldaway.forgetting import harden
from foldaway.forgetting.rehearsal import rehearse
rehearse()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork():
        continue
    plan, path, care = json.loads(line)
    trial = fa.Trial(fa.Plan.loads(json.dumps(plan)))
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as batches:
        for batch in batches:
            trial.fold(batch)
            del batch
    if care == "none":
        harden.overwrite_working_memory = lambda: None
    harden.forget_now()
    print(os.getpid(), flush=True)
    signal.pause()
"""

Rows = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def batches(n: int, rare: int) -> list[pa.RecordBatch]:
    """Batches of n records, of which every so many is in the second arm."""
    chance = np.random.default_rng(n)
    return [
        pa.record_batch(
            {
                "g": np.where(np.arange(n) % rare == 0, "b", "a"),
                "y": chance.normal(100, 10, n),
                "x": chance.normal(50, 5, n),
                "u": np.arange(n) + n * number,
            }
        )
        for number in range(4)
    ]


def framed(plan: fa.Plan, given: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch) -> Rows:
    """The outcomes and covariates of the last batch as they go into the tallies: in the frame."""
    seen: list[Rows] = []
    apply = linalg.frame_rows

    def spy(F: Rows, rows: Rows) -> Rows:
        if len(rows) > len(F):  # records, and not another frame
            seen.append(apply(F, rows).T)
        return apply(F, rows)

    trial = fa.Trial(plan)
    for batch in given:
        seen.clear()
        with monkeypatch.context() as patch:
            for module in (frame, group_moments):
                patch.setattr(module, "frame_rows", spy)
            trial.fold(batch)
    return np.concatenate([rows[1:].ravel() for rows in seen])


@pytest.fixture(scope="module")
def folding() -> Iterator[Callable[[object], int]]:
    """What folds a file in a process of its own, whose number it returns."""
    words = [sys.executable, "-c", CHILD]
    care = {**os.environ, **environment({})}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=care, text=True) as process:
        given, said = process.stdin, process.stdout
        assert given is not None
        assert said is not None

        def fold(order: object) -> int:
            print(json.dumps(order), file=given, flush=True)
            return int(said.readline())

        yield fold
        given.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("plan", [SUMS, pytest.param(MOMENTS, marks=pytest.mark.slow)], ids=["sums", "moments"])
@pytest.mark.parametrize(("n", "rare"), mostly_slow([(3000, 2), (3000, 500), (20, 2)], (3000, 2)))
def test_the_last_rows_are_overwritten(
    n: int,
    rare: int,
    plan: fa.Plan,
    folding: Callable[[object], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = batches(n, rare)
    rows = framed(plan, given, monkeypatch)
    with pa.ipc.new_stream(tmp_path / "rows", given[0].schema) as writer:
        for batch in given:
            writer.write_batch(batch)
    left = {}
    for care in ("forgetting", "none"):
        pid = folding([json.loads(plan.to_json()), str(tmp_path / "rows"), care])
        left[care] = count_numbers(pid, rows)
        os.kill(pid, signal.SIGKILL)
    assert left["none"] > 0  # or else this is not needed any more
    assert left["forgetting"] == 0
