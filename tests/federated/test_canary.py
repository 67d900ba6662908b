"""After a device has reported and forgotten, nothing of its values is anywhere: folder, process, coordinator."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import foldaway as fa
from devices import Hosted
from foldaway_device.folder import FolderStore
from foldaway_device.state import State
from memory_scan import Hits, Marks, _chunks, scan_files, scan_process
from served import Served

DEVICE = Path(__file__).parents[1] / "canary_device.py"
VALUES = 40

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may read another process's memory"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A coordinator, started as anybody would; every test plants marks of its own."""
    with Served(tmp_path_factory.mktemp("coordinator"), None) as server:
        yield server


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


def in_messages(marks: Marks) -> list[bytes]:
    """The marks as messages and states may hold them: in base64, with any number of bytes before; with the other sign;
    and as text."""
    outcomes = [marks.outcome(i) for i in range(min(marks.count, 4))]
    packed = [struct.pack("<d", sign * outcome) for outcome in outcomes for sign in (1, -1)]
    # Of the digits, those that no other byte has a part in.
    encoded = [b64encode(bytes(before) + value)[4 if before else 0 : -3] for value in packed for before in range(3)]
    return [struct.pack("<d", -outcome) for outcome in outcomes] + encoded + [repr(y).encode() for y in outcomes]


def in_files(folder: Path, patterns: list[bytes]) -> bool:
    data = b"\0".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return any(pattern in data for pattern in patterns)


def in_process(pid: int, patterns: list[bytes]) -> bool:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        return any(pattern in data for _, data in _chunks(pid, memory) for pattern in patterns)


def assert_only_a_mark(folder: Path, plan: fa.Plan) -> None:
    with FolderStore(folder).changing(plan.name) as held:
        assert held.state is not None
        assert vars(held.state) == vars(State(plan.fingerprint, stage="forgotten"))


def others_report(trial: Hosted) -> None:
    """Devices that make up a cohort in every arm, and in mode sums fill its groups: sums of one device are its own."""
    from devices import device_in, report_all

    devices = [
        device_in(trial.plan, arm, trial.link)
        for arm in trial.plan.arms
        for _ in range(120 if trial.plan.mode == "sums" else trial.plan.privacy.cohort)
    ]
    for i, device in enumerate(devices):
        for k in (0, 3):
            device.record({"revenue": float(i + k), **{name: float(i - k) for name in trial.plan.covariates}})
    report_all(devices, rounds=1)
    if trial.plan.mode == "scores":
        trial.end(deadline=600)
        report_all(devices, rounds=1)


@pytest.mark.parametrize(
    ("mode", "covariates"),
    [
        ("one-message", ["before"]),
        pytest.param("scores", [], marks=pytest.mark.slow),
        pytest.param("one-message", [], marks=pytest.mark.slow),
        pytest.param("delta", [], marks=pytest.mark.slow),
        pytest.param("sums", [], marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_of_what_a_device_has_forgotten(
    mode: str, covariates: list[str], server: Served, tmp_path: Path
) -> None:
    # Of a single record the factor is the record itself, up to its sign, and so is the sum: the hardest cases.
    marks = Marks(VALUES if mode == "scores" else 1)
    folder = tmp_path / "device"
    plan = fa.Plan(
        name=f"canary-{mode}-{len(covariates)}",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue"],
        covariates=covariates,
        federated=mode,  # type: ignore[arg-type]
        expected_units=32,  # 16 groups
        privacy=fa.Privacy(cohort=1 if mode == "scores" else 3, smallest_cell=1),
    )
    trial = Hosted(server, plan)
    with device_process("hardened", trial, folder) as device:
        for i in range(marks.count):
            device.ask("record", marks.outcome(i).hex())
        # Teeth: while it must be there, it is found.
        assert in_files(folder, in_messages(marks)) is (mode != "scores")  # a factor of many records shows none
        assert device.ask("report", "0") == ("waiting for coefficients" if mode == "scores" else "pending")
        others_report(trial)
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
        assert not in_files(tmp_path, in_messages(marks))
        assert not in_files(server.folder, in_messages(marks))
        assert not in_process(device.pid, in_messages(marks))
        assert not in_process(server.pid, in_messages(marks))
    assert_only_a_mark(folder, plan)


def test_who_forgets_while_the_report_is_pending_keeps_nothing_either(server: Served, tmp_path: Path) -> None:
    """The report of one record is that record; it waits at the coordinator, and nowhere else."""
    marks = Marks(1)
    folder = tmp_path / "device"
    plan = fa.Plan(
        name="pending",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue"],
        federated="one-message",
    )
    trial = Hosted(server, plan)
    with device_process("hardened", trial, folder) as device:
        device.ask("record", marks.outcome(0).hex())
        assert device.ask("report", "0") == "pending"
        assert in_files(folder, in_messages(marks))
        device.ask("forget")
        time.sleep(1.5)
        assert not scan_files([tmp_path, server.folder], marks)
        assert not scan_process(device.pid, marks)
        assert not in_files(tmp_path, in_messages(marks))
        assert not in_files(server.folder, in_messages(marks))
        assert not in_process(device.pid, in_messages(marks))
    assert_only_a_mark(folder, plan)


def test_the_scan_finds_what_a_careless_process_leaves(server: Served, tmp_path: Path) -> None:
    """Teeth of the scan of the process: before it forgets, and without care, values are in the device's memory."""
    marks = Marks(VALUES)
    plan = fa.Plan(
        name="careless",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue"],
        federated="scores",
        privacy=fa.Privacy(cohort=1),
    )
    trial = Hosted(server, plan)
    with device_process("usual", trial, tmp_path / "device") as device:
        for i in range(marks.count):
            device.ask("record", marks.outcome(i).hex())
        assert device.ask("report", "0") == "waiting for coefficients"
        found: Hits = scan_process(device.pid, marks)
        assert found
        assert not scan_files([tmp_path / "device"], marks)
