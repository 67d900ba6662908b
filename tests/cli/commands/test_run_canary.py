"""Planted records through `foldaway run`: its memory is searched when all are folded and it is about to print."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

from canary import PLAN, record, report
from memory_scan import Marks
from plans import replaced
from served import eventually

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)

_CAPACITY = 4096


def test_a_hardened_run_leaves_nothing_in_its_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = Marks(4_000)
    replaced(PLAN, moments=None).save(tmp_path / "plan.toml")
    table = pa.Table.from_pylist([record(marks, i) for i in range(marks.count)])
    pa.csv.write_csv(table, tmp_path / "records.csv")
    _, full = os.pipe()  # nobody reads it, so that whoever prints has to wait
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, _CAPACITY)
    os.write(full, bytes(_CAPACITY))
    words = [sys.executable, "-m", "foldaway", "run", "plan.toml", "records.csv", "--json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.Popen([*words, *more], cwd=tmp_path, stdout=full, stderr=subprocess.DEVNULL, env=environment)
        for more in (["--harden"], [])
    ]
    try:
        eventually(lambda: all("pipe_write" in Path(f"/proc/{run.pid}/wchan").read_text() for run in runs), 90)
        hardened, usual = (report(marks, pid=run.pid, data=[tmp_path / "state"]) for run in runs)
    finally:
        for run in runs:
            run.kill()
            run.wait()
    with capsys.disabled():
        print(f"\nfoldaway run --harden: {hardened}\nand without it: {usual}")
    assert hardened.clean
    assert len(usual.places["process memory"].identifiers) > marks.count / 2
