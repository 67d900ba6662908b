"""Mode shares from Node: devices of both packages in one trial, whose effects are those of an analysis in the clear."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

from driven import Driven
from foldaway.plan.arms import device_group
from served import Served
from servers import Nursery
from shared_trials import assert_same, hosted, in_the_clear, new_keys, said_of
from two_servers import GROUPS, device_of, shared


def test_devices_of_both_packages_are_in_one_trial(tmp_path: Path, served_from: Nursery, node_package: Path) -> None:
    leader = Served(tmp_path / "leader", served_from, "--role", "leader", unrounded=True)
    helper = Served(tmp_path / "helper", served_from, "--role", "helper")
    for server in (leader, helper):
        new_keys(server)
    with leader, helper:
        trial = hosted((leader, helper), shared, cohort=4, smallest_cell=1, expected_units=64)
        ours = [device_of(trial.plan, "ab"[i % 2], i // 2 % GROUPS, trial.link) for i in range(4 * GROUPS)]
        records = [[{"y": float(i * i % 23 - 7)}, {"y": 0.5}] for i in range(len(ours))]
        for device, mine in zip(ours, records, strict=True):
            for record in mine:
                device.record(record)
            device.report()
        said = said_of(ours, records)
        node = Driven(node_package)
        for i in range(9):
            folder, mine = tmp_path / f"node{i}", [{"y": 3.25 * i}, {"y": -0.125}]
            arm = node.ask(f"node{i}", "open", trial.address, {"token": trial.token, "folder": str(folder)})
            node.ask(f"node{i}", "record", mine)
            (file,) = folder.glob("*.foldaway-kept")
            identity = b64decode(json.loads(file.read_text())["kept"]["identity"])
            said.append((arm, device_group(trial.plan.groups, trial.plan.fingerprint, identity), mine))
            assert node.ask(f"node{i}", "report")["state"] in ("pending", "counted")
        node.kill()
        answer = trial.end()
        assert sum(answer["federated"]["reported"].values()) == len(said)
        published = helper.ask("GET", f"{trial.path}/effects").json()["summands"]
        assert_same(trial.effects(), in_the_clear(trial.plan, said, published["groups"]))
