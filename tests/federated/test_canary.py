"""After a device has reported and forgotten, nothing of its values is anywhere: folder, process, coordinator."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import foldaway as fa
from devices import Hosted
from memory_scan import Hits, Marks, count_numbers, scan_files, scan_process
from served import Served

DEVICE = Path(__file__).parents[1] / "canary_device.py"
VALUES = 40

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)


class Process:
    """The device's process."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running = running
        self.pid = running.pid

    def ask(self, *words: str) -> object:
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        print(*words, file=self._running.stdin, flush=True)
        return json.loads(self._running.stdout.readline())


@contextmanager
def device_process(care: str, trial: Hosted, folder: Path) -> Iterator[Process]:
    command = [sys.executable, str(DEVICE), care, trial.address, trial.token, str(folder)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Process(running)
    finally:
        running.terminate()
        running.communicate()


def values_of(marks: Marks) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The marks, and what they are with the other sign, as a factor may hold them."""
    values = np.array([marks.outcome(i) for i in range(marks.count)])
    return np.concatenate([values, -values])


def in_files(folders: list[Path], values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """How many of the numbers are in files, at any place in them."""
    data = b"\0".join(p.read_bytes() for folder in folders for p in folder.rglob("*") if p.is_file())
    return sum(struct.pack("<d", value) in data or repr(float(value)).encode() in data for value in values)


def others_report(trial: Hosted, count: int) -> None:
    """Devices that make up the cohort."""
    from devices import report_all, store_in
    from foldaway.federated import Device

    devices = [Device(trial.plan, store=store_in(trial.plan, arm), link=trial.link) for arm in trial.plan.arms] + [
        Device(trial.plan, store=store_in(trial.plan, trial.plan.control), link=trial.link) for _ in range(count - 2)
    ]
    for i, device in enumerate(devices):
        device.record({"revenue": float(i)})
        device.record({"revenue": float(i + 3)})
    report_all(devices, rounds=1)
    if trial.plan.federated == "scores":
        trial.close(deadline=600)
        report_all(devices, rounds=1)


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_nothing_is_left_of_what_a_device_has_forgotten(mode: str, tmp_path: Path) -> None:
    # Of a single record the factor is the record itself, up to its sign: the hardest case in mode one-message.
    marks = Marks(1 if mode == "one-message" else VALUES)
    values, folder = values_of(marks), tmp_path / "device"
    plan = fa.Plan(
        name="canary",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue"],
        federated=mode,  # type: ignore[arg-type]
        cohort=3,
        min_per_arm=1,
        remainder="include",
    )
    with Served(tmp_path / "server", None) as server:
        trial = Hosted(server, plan)
        with device_process("hardened", trial, folder) as device:
            for i in range(marks.count):
                device.ask("record", marks.outcome(i).hex())
            # Teeth: while it must be there, it is found.
            assert in_files([folder], values) == marks.count
            assert device.ask("report", "0") == "pending"
            others_report(trial, 4)
            assert device.ask("report", "30") == "counted"
            device.ask("forget")
            time.sleep(1.5)
            found = {
                "the device's folder": scan_files([folder], marks),
                "the device's process": scan_process(device.pid, marks),
                "the coordinator's files": scan_files([server.folder], marks),
                "the coordinator's process": scan_process(server.pid, marks),
            }
            assert not any(found.values()), {place: str(hits) for place, hits in found.items() if hits}
            assert in_files([folder, server.folder], values) == 0
            assert count_numbers(device.pid, values) == 0
            assert count_numbers(server.pid, values) == 0
        assert [path.name for path in folder.iterdir()] == ["canary.forgotten"]


def test_the_scan_finds_what_a_careless_process_leaves(tmp_path: Path) -> None:
    """Teeth of the scan of the process: before it forgets, and without care, values are in the device's memory."""
    marks = Marks(VALUES)
    plan = fa.Plan(
        name="careless",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue"],
        federated="scores",
        cohort=1,
    )
    with Served(tmp_path / "server", None) as server:
        trial = Hosted(server, plan)
        with device_process("usual", trial, tmp_path / "device") as device:
            for i in range(marks.count):
                device.ask("record", marks.outcome(i).hex())
            assert device.ask("report", "0") == "waiting for coefficients"
            found: Hits = scan_process(device.pid, marks)
            assert found
            assert scan_files([tmp_path / "device"], marks).outcomes == set(range(marks.count))
