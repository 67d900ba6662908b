"""A device takes its report out again, wherever it stands, and knows in the end whether it did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldaway as fa
from devices import Hosted, device_in, state_of, wait_for
from foldaway_device import Device, ServerError, StateError
from foldaway_device.folder import FolderStore
from served import Served
from servers import Nursery


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from, unrounded=True) as found:
        yield found


def trial_of(server: Served, name: str, mode: str = "delta") -> Hosted:
    plan = fa.Plan(
        name=name,
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        federated=mode,  # type: ignore[arg-type]
        privacy=fa.Privacy(cohort=3, smallest_cell=1),
    )
    return Hosted(server, plan)


def crowd(trial: Hosted, *values: float, keep: bool = True) -> list[Device]:
    """Devices in both arms, with a record each, that have reported."""
    devices = []
    for place, value in enumerate(values):
        device = device_in(trial.plan, "ab"[place % 2], trial.link)
        device.record({"y": value})
        wait_for(device)
        device.report(keep_report=keep)
        devices.append(device)
    return devices


def states(devices: list[Device]) -> list[str]:
    return [device.report().state for device in devices]


def test_a_counted_report_goes_with_the_next_cohort(server: Served) -> None:
    trial = trial_of(server, "counted")
    first = crowd(trial, 10.0, 20.0, 30.0)
    assert states(first) == ["counted"] * 3
    assert first[0].withdraw().state == first[0].withdraw().state == "withdrawing"
    assert "withdraw again later" in first[0].status.meaning
    more = crowd(trial, 1.0, 2.0, 3.0, 4.0)
    assert states(first) == ["withdrawn", "counted", "counted"]
    assert not state_of(first[0]).report
    assert first[0].withdraw().state == "withdrawn"
    with pytest.raises(StateError, match="no longer, in the trial"):
        first[0].record({"y": 1.0})
    assert more[1].withdraw().state == "withdrawing"
    trial.end()
    assert states([*first, *more]) == ["withdrawn", *["counted"] * 3, "withdrawn", *["counted"] * 2]
    there = trial.effects()[0]
    assert there.estimate == pytest.approx((20.0 + 4.0) / 2 - (30.0 + 1.0 + 3.0) / 3, rel=1e-9)
    assert trial.status()["withdrawn"] == {"a": 1, "b": 1}
    assert first[1].withdraw().state == "withdrawn too late"
    assert not state_of(first[1]).report


def test_a_report_that_is_not_counted_yet_is_out_at_once(server: Served) -> None:
    trial = trial_of(server, "pending", "sums")
    early = device_in(trial.plan, "a")  # without a server, which need not know
    early.record({"y": 5.0})
    assert early.withdraw().state == "withdrawn"
    pending, leaving = crowd(trial, 10.0, 20.0, keep=False)
    assert pending.withdraw().state == "withdrawn"
    leaving.forget(keep_report=True)
    assert leaving.withdraw().state == "forgotten"
    assert sum(trial.status()["reported"].values()) == 0


def test_a_device_may_forget_while_it_withdraws(server: Served, tmp_path: Path) -> None:
    trial = trial_of(server, "forgets")
    store = FolderStore(tmp_path / "device")
    device = device_in(trial.plan, "a", trial.link, store)
    device.record({"y": 7.0})
    wait_for(device)
    device.report(keep_report=True)
    crowd(trial, 1.0, 2.0)
    assert device.report().state == "counted"
    device.withdraw()
    device.forget(keep_report=True)
    device = Device.open(trial.address, token=trial.token, store=tmp_path / "device")
    assert (device.report().state, device.status.records) == ("withdrawing", 0)
    crowd(trial, 1.0, 2.0, 3.0, 4.0)
    assert device.withdraw().state == "forgotten"


def test_what_was_not_kept_cannot_be_withdrawn(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(server, "not-kept")
    without, *kept = [*crowd(trial, 1.0, keep=False), *crowd(trial, 2.0, 3.0)]
    assert states([without, *kept]) == ["counted"] * 3
    with pytest.raises(StateError, match=r"report\(keep_report=True\) keeps it"):
        without.withdraw()
    later: Any = kept[0]._custody.status  # its time is up
    now = state_of(kept[0]).until + 1
    monkeypatch.setattr("time.time", lambda: now)
    with pytest.raises(StateError, match="cannot be withdrawn"):
        kept[0].withdraw()
    assert kept[0].status == later
    kept[1].forget(keep_report=True)  # it is safe: there is nothing to wait for
    assert kept[1].status.state == "forgotten"
    scores = device_in(fa.Plan(name="s", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="scores"), "a")
    with pytest.raises(StateError, match="scores cannot withdraw"):
        scores.withdraw()


def test_without_a_network_it_withdraws_later(server: Served, tmp_path: Path) -> None:
    trial = trial_of(server, "offline")
    store = FolderStore(tmp_path / "device")
    device = device_in(trial.plan, "a", trial.link, store)
    device.record({"y": 7.0})
    wait_for(device)
    device.report()
    away = Device.open("http://127.0.0.1:1/v1/trials/offline", token=trial.token, store=tmp_path / "device")
    with pytest.raises(ServerError, match="later"):
        away.withdraw(timeout=0.2)
    assert away.status.state == "withdrawing"
    again = Device.open(trial.address, token=trial.token, store=tmp_path / "device")
    assert again.report().state == "withdrawn"
