"""The live demo shows effects of records that nobody keeps, and leaves no process and no file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from foldaway.client import Client
from foldaway.simulation.demo import PLAN
from measured import measured


@pytest.mark.parametrize(
    ("minutes", "stop"),
    [
        (10, signal.SIGINT),
        pytest.param(10, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(0.1, None, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_of_it(tmp_path: Path, minutes: float, stop: signal.Signals | None) -> None:
    places = {name: tmp_path / name for name in ("TMPDIR", "XDG_STATE_HOME", "HOME")}
    for place in places.values():
        place.mkdir()
    demo = subprocess.Popen(
        [sys.executable, "-m", "foldaway", "demo", "--live", "--minutes", str(minutes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **measured(), **{name: str(place) for name, place in places.items()}},
    )
    assert demo.stdout is not None
    address, token = (re.split(r"\s+", demo.stdout.readline().strip(), maxsplit=2)[-1] for _ in range(2))
    children = psutil.Process(demo.pid).children(recursive=True)
    assert children
    if stop is not None:
        with Client(address, token) as reader:
            until = time.monotonic() + 60
            while not (folded := reader.status(PLAN.name)["records"]) and time.monotonic() < until:
                time.sleep(0.5)
            assert folded
        demo.send_signal(stop)
    out, err = demo.communicate(timeout=90)
    assert (demo.returncode, err) == (0, "")
    assert out.endswith("The server has ended, and its folder is deleted.\n")
    assert not any(child.is_running() for child in children)
    assert [file for place in places.values() for file in place.rglob("*")] == []
