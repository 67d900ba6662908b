"""Devices and their coordinator are killed at random moments, in real processes: everyone is counted once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from device_process import SETTLED, DeviceNursery, kill
from devices import Hosted, assert_as_kept_rows
from foldaway_device import Device
from served import Served
from servers import Nursery
from sizes import mostly_slow

pytestmark = pytest.mark.once

DEVICES = 12
KILLS = 20
COHORT = 4


@pytest.fixture(scope="module")
def device_nursery() -> Iterator[DeviceNursery]:
    with DeviceNursery() as nursery:
        yield nursery


def plan_of(mode: str) -> fa.Plan:
    return fa.Plan(
        name=f"crashes-{mode}",
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        covariates=[] if mode in ("delta", "sums") else ["x"],
        federated=mode,  # type: ignore[arg-type]
        # In mode scores a device's later moments wait until its first ones are durable; short of a cohort they would
        # come too late, and be missing from the effects.
        privacy=fa.Privacy(cohort=1 if mode == "scores" else COHORT, smallest_cell=1),
    )


class Crowd:
    """Devices that live in short-lived processes, and what is done to them."""

    def __init__(self, folder: Path, plan: fa.Plan, nursery: DeviceNursery, seed: int) -> None:
        self.plan = plan
        self.nursery = nursery
        self.chance = random.Random(seed)
        self.file = folder / "plan.json"
        self.file.write_bytes(plan.canonical())
        rng = np.random.default_rng(seed)
        self.folders = [folder / f"device-{i}" for i in range(DEVICES)]
        columns = [*plan.measured, *plan.covariates]
        self.records = [
            [dict(zip(columns, rng.normal(i % 3, 1, len(columns)).tolist(), strict=True)) for _ in range(1 + i % 4)]
            for i in range(DEVICES)
        ]
        self.ended: Counter[int] = Counter()
        self.leavers: set[int] = set()

    def rows(self) -> pd.DataFrame:
        """All that was recorded, with the arms that the devices have."""
        found = []
        for unit, (folder, records) in enumerate(zip(self.folders, self.records, strict=True)):
            arm = Device.open(self.file, store=folder).arm
            found += [{**record, "group": arm, "unit": unit} for record in records]
        return pd.DataFrame(found)

    def start(self, device: int, trial: Hosted, seconds: float) -> int:
        return self.nursery.start(
            self.folders[device],
            self.file,
            trial.address,
            trial.token,
            self.records[device],
            seconds,
            self.plan.mode == "scores",
            device in self.leavers,
        )

    def live(self, device: int, trial: Hosted, *, killed: bool) -> bool:
        """One life of a device, cut short or not; whether it has settled."""
        pid = self.start(device, trial, seconds=0.0 if not killed else 5.0)
        if killed:
            time.sleep(self.chance.uniform(0, 0.05))
            kill(pid)
        code = self.nursery.wait(pid)
        assert code in (0, 3, -9), f"a device has failed with {code}"
        self.ended[code] += 1
        return code == SETTLED


def crowd_in_both_arms(plan: fa.Plan, folder: Path, nursery: DeviceNursery) -> Crowd:
    """The first crowd with five devices in each arm: with fewer an error is withheld."""
    for seed in range(100):
        crowd = Crowd(made(folder / f"{seed}"), plan, nursery, seed)
        arms = crowd.rows().groupby("group")["unit"].nunique().to_dict()
        if min(arms.get(arm, 0) for arm in plan.arms) >= 5:
            return crowd
    raise AssertionError("no such crowd")


SLOW = pytest.mark.slow

KILLED = [pytest.param("one-message", marks=SLOW), "scores", *(pytest.param(m, marks=SLOW) for m in ("delta", "sums"))]


@pytest.mark.parametrize("mode", KILLED)
def test_whoever_is_killed_is_counted_once(
    mode: str, tmp_path: Path, device_nursery: DeviceNursery, served_from: Nursery
) -> None:
    plan = plan_of(mode)
    crowd = crowd_in_both_arms(plan, tmp_path, device_nursery)
    server = Served(tmp_path / "server", served_from, unrounded=True)
    with server:
        trial = Hosted(server, plan)
        _rough(crowd, trial, server)
        if mode == "scores":
            _until_sent(crowd, trial)
            trial.end(deadline=600)
            _rough(crowd, trial, server)
        _until_sent(crowd, trial)
        about = trial.end(deadline=0)["federated"]
        for device in range(DEVICES):
            assert crowd.live(device, trial, killed=False)
        assert {Device.open(crowd.file, store=folder).status.state for folder in crowd.folders} == {"counted"}
        assert sum(about["enrolled"].values()) == sum(about["reported"].values()) == DEVICES
        assert crowd.ended[-9] >= KILLS // 3  # some had ended by themselves before
        kept = with_unit(plan)
        assert_as_kept_rows(trial.effects(), kept, crowd.rows())


@pytest.mark.parametrize("mode", mostly_slow(["sums", "delta", "one-message"], "sums"))
def test_whoever_withdraws_and_is_killed_is_not_counted(
    mode: str, tmp_path: Path, device_nursery: DeviceNursery, served_from: Nursery
) -> None:
    plan = plan_of(mode)
    crowd = crowd_in_both_arms(plan, tmp_path, device_nursery)
    with Served(tmp_path / "server", served_from, unrounded=True) as server:
        trial = Hosted(server, plan)
        _until_sent(crowd, trial)
        by_arm = crowd.rows().drop_duplicates("unit").groupby("group")["unit"]
        crowd.leavers = {unit for _, units in by_arm for unit in units.iloc[5:]}
        _rough(crowd, trial, server, sorted(crowd.leavers))
        _until_sent(crowd, trial)
        about = trial.end(deadline=0)["federated"]
        _until_sent(crowd, trial)
        states = [Device.open(crowd.file, store=folder).status.state for folder in crowd.folders]
        assert states == ["withdrawn" if device in crowd.leavers else "counted" for device in range(DEVICES)]
        assert sum(about["reported"].values()) == DEVICES - len(crowd.leavers)
        rows = crowd.rows()
        assert_as_kept_rows(trial.effects(), with_unit(plan), rows[~rows["unit"].isin(crowd.leavers)])


def made(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


def with_unit(plan: fa.Plan) -> fa.Plan:
    import msgspec

    settings: dict[str, Any] = msgspec.structs.asdict(plan)
    return fa.Plan(**{**settings, "federated": None, "moments": {}, "unit": "unit", "records_per_unit": "together"})


def _rough(crowd: Crowd, trial: Hosted, server: Served, among: Sequence[int] = range(DEVICES)) -> None:
    """Lives that are cut short, and now and then the coordinator's."""
    for turn in range(KILLS):
        crowd.live(crowd.chance.choice(among), trial, killed=True)
        if turn % 10 == 9:
            pid = crowd.start(crowd.chance.choice(among), trial, 5.0)
            time.sleep(crowd.chance.uniform(0, 0.1))
            server.kill()
            server.start()
            kill(pid)
            crowd.nursery.wait(pid)


def _until_sent(crowd: Crowd, trial: Hosted) -> None:
    """Everyone lives once in peace; what is pending then is with the coordinator."""
    for device in range(DEVICES):
        crowd.live(device, trial, killed=False)
