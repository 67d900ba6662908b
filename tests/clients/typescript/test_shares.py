"""Mode shares: devices in Python, Node and Chromium in one trial, with the effects of an analysis in the clear."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

from driven import Driven
from foldaway.plan.arms import device_group
from served import Served
from servers import Nursery
from shared_trials import assert_same, hosted, in_the_clear, new_keys, said_of
from shop import shop
from two_servers import GROUPS, device_of, shared

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# Devices of a page, each with its place as its only record: their arms and identities.
IN_A_PAGE = """async ([address, token, count]) => {
    const told = []
    for (let i = 0; i < count; i++) {
        const store = new window.foldaway.DatabaseStore(`device${i}`)
        const device = await window.foldaway.Device.open(address, { token, store })
        await device.record({ y: i })
        const { state } = await device.report()
        const identity = await store.change(device.trial, (kept) => ({ answer: kept.identity }))
        told.push([device.arm, identity, state])
    }
    return told
}"""


def test_devices_of_all_packages_are_in_one_trial(
    tmp_path: Path, served_from: Nursery, node_package: Path, browser: Browser
) -> None:
    (tmp_path / "shop").mkdir()
    with shop(tmp_path / "shop", node_package) as origin:
        assert_one_trial(tmp_path, served_from, node_package, browser, origin)


def assert_one_trial(tmp_path: Path, served_from: Nursery, node_package: Path, browser: Browser, origin: str) -> None:
    """Devices of Python, Node and a page of another origin."""
    flags = ("--role", "leader", "--allow-origin", origin)
    leader = Served(tmp_path / "leader", served_from, *flags, unrounded=True)
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
        page = browser.new_page()
        page.goto(origin)
        page.wait_for_function("window.foldaway !== undefined")
        for i, (arm, told, state) in enumerate(page.evaluate(IN_A_PAGE, [trial.address, trial.token, 5])):
            assert state in ("pending", "counted")
            group = device_group(trial.plan.groups, trial.plan.fingerprint, b64decode(told))
            said.append((arm, group, [{"y": float(i)}]))
        page.close()
        answer = trial.end()
        assert sum(answer["federated"]["reported"].values()) == len(said)
        published = helper.ask("GET", f"{trial.path}/effects").json()["summands"]
        assert_same(trial.effects(), in_the_clear(trial.plan, said, published["groups"]))
