"""Random schedules of crashes, kills, repeats, losses and delays: each device is counted once, or is missing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from foldaway.federated.messages import Kind, Stage
from foldaway.service.collecting.device_inbox import DeviceInbox
from foldaway.service.database.device_table import Known
from foldaway_device.reporting import Reporting
from foldaway_device.state import new_number
from postgres import quick_folder
from schedules import Schedule, Tale

pytestmark = pytest.mark.once


def run(seeds: range, *, files: bool = False) -> Tale:
    tale = Tale()
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
            tale += Schedule(Path(folder), seed, files=files).run()
    return tale


def shows(what: str, seeds: range) -> bool:
    """Whether one of the schedules finds this wrong."""
    return any(what in wrong for seed in seeds for wrong in run(range(seed, seed + 1)).wrong)


def test_each_device_is_counted_once_or_missing() -> None:
    tale = run(range(12))
    assert not tale.wrong, tale.wrong
    assert tale.counted > 8
    assert tale.missing > 1
    assert len(tale.events) > 8


def test_with_the_devices_state_in_files() -> None:
    tale = run(range(100, 104), files=True)
    assert not tale.wrong, tale.wrong
    assert tale.counted > 2


def test_a_report_that_is_counted_twice_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: a coordinator that does not look for numbers it has seen."""
    look = DeviceInbox._answered

    def careless(self: DeviceInbox, kind: Kind, number: bytes, stage: Stage, known: dict[bytes, Known]) -> Any:
        return None if kind == "reports" and number in known else look(self, kind, number, stage, known)

    monkeypatch.setattr(DeviceInbox, "_answered", careless)
    monkeypatch.setattr("foldaway.service.database.device_table._mark", lambda *_, **__: None)
    assert shows("is counted 2 times", range(0, 40, 4))  # mode one-message


def test_a_device_that_sends_its_records_again_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: a device that gives a message another number each time it sends it."""

    def careless(self: Reporting, kind: str, message: str, until: float) -> bool:
        return post(self, kind, json.dumps({**json.loads(message), "number": new_number()}), until)

    post = Reporting._post
    monkeypatch.setattr(Reporting, "_post", careless)
    assert shows("is counted 2 times", range(1, 40, 4))  # mode scores
