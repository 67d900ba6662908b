"""The npm package in Chromium, in a page of another origin than the server's: tabs killed, two at a time, offline."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import foldaway as fa
from browser import CHROMIUM
from devices import Hosted
from served import Served
from servers import Nursery
from shop import shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.once

# In the page: an answer, or the kind and the message of the package's error.
ASK = """async ([body, args]) => {
    const AsyncFunction = (async () => undefined).constructor
    try {
        return { answer: await new AsyncFunction("foldaway", "args", body)(window.foldaway, args) }
    } catch (error) {
        if (!(error instanceof window.foldaway.FoldawayError)) throw error
        return { error: error.name, message: error.message }
    }
}"""


@pytest.fixture(scope="module")
def origin(node_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shop(tmp_path_factory.mktemp("shop"), node_package) as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery, origin: str) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("coordinator")
    with Served(folder, served_from, "--allow-origin", origin, unrounded=True) as found:
        yield found


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A visitor, whose tabs share a storage."""
    found = browser.new_context()
    yield found
    found.close()


def tab(context: BrowserContext, origin: str) -> Page:
    page = context.new_page()
    page.goto(origin)
    page.wait_for_function("window.foldaway !== undefined")
    return page


def ask(page: Page, body: str, *args: Any) -> Any:
    """What a function of the package and of `args` answers in the page."""
    told = page.evaluate(ASK, [body, list(args)])
    assert "error" not in told, told
    return told.get("answer")  # none, if it is undefined


def refused(page: Page, body: str, *args: Any) -> str:
    """The kind and the message of the error that it throws."""
    told = page.evaluate(ASK, [body, list(args)])
    return f"{told['error']}: {told['message']}"


OPEN = "window.device = await foldaway.Device.open(args[0], args[1]); return window.device.arm"
RECORD = "for (const record of args[0]) await window.device.record(record)"
REPORT = "return await window.device.report(args[0])"
STATUS = "return await window.device.status()"
# Six further devices in each arm, each with its place as its only record, that have reported.
COMPANY = """
    const arms = []
    for (let i = 0; arms.length < 12; i++) {
        const store = new foldaway.DatabaseStore(`other${i}`)
        const device = await foldaway.Device.open(args[0], { ...args[1], store })
        if (arms.filter((arm) => arm === device.arm).length === 6) continue
        await device.record({ y: arms.length })
        await device.report()
        arms.push(device.arm)
    }
    return arms
"""


def hosted(server: Served, name: str) -> Hosted:
    plan = fa.Plan(
        name=name,
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        federated="sums",
        privacy=fa.Privacy(cohort=5, smallest_cell=2),
    )
    return Hosted(server, plan)


def assert_means(trial: Hosted, values: list[tuple[str, float]], devices: int) -> None:
    """So many devices have reported these values, by arm."""
    assert sum(trial.end()["federated"]["reported"].values()) == devices
    sums = {arm: [value for its, value in values if its == arm] for arm in "ab"}
    means = {arm: sum(found) / len(found) for arm, found in sums.items()}
    assert trial.effects()[0].estimate == pytest.approx(means["b"] - means["a"], rel=1e-9)


def kill_tabs(browser: Browser) -> None:
    """At once, without a chance to tidy up."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    for process in processes:
        if process["type"] == "renderer":
            os.kill(process["id"], signal.SIGKILL)


def kill_browsers_in(folder: Path) -> None:
    """The processes that a browser with this folder was started as: its program, and what may have started that."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if f"--user-data-dir={folder}" in process.cmdline():
                found.append(process)
    assert found
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=10)


def test_a_killed_tab_has_its_records_counted_once(
    browser: Browser, context: BrowserContext, origin: str, server: Served
) -> None:
    trial = hosted(server, "killed")
    settings = {"token": trial.token}
    page = tab(context, origin)
    arms = ask(page, COMPANY, trial.address, settings)
    arm = ask(page, OPEN, trial.address, settings)
    records = [{"y": 100.0}, {"y": 101.0}, {"y": 102.0}]
    ask(page, RECORD, records)
    kill_tabs(browser)
    page = tab(context, origin)
    assert ask(page, OPEN, trial.address, settings) == arm
    assert ask(page, STATUS)["records"] == 3
    page.evaluate("void window.device.report()")
    kill_tabs(browser)
    page = tab(context, origin)
    ask(page, OPEN, trial.address, settings)
    ask(page, REPORT, {})
    trial.end(deadline=0)
    assert ask(page, REPORT, {}) == {"trial": "killed", "state": "counted", "records": 3, "settled": True}
    values = [(each, float(i)) for i, each in enumerate(arms)] + [(arm, record["y"]) for record in records]
    assert_means(trial, values, 13)


def test_a_killed_browser_goes_on(origin: str, server: Served, browser: Browser, tmp_path: Path) -> None:
    """One that stores on the disk, as people's browsers do."""
    trial = hosted(server, "browser")
    settings = {"token": trial.token}
    launch = browser.browser_type.launch_persistent_context
    options: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
    page = tab(launch(tmp_path, **options), origin)
    arms = ask(page, COMPANY, trial.address, settings)
    arm = ask(page, OPEN, trial.address, settings)
    ask(page, RECORD, [{"y": 50.0}])
    kill_browsers_in(tmp_path)
    (tmp_path / "SingletonLock").unlink(missing_ok=True)
    again = launch(tmp_path, **options)
    page = tab(again, origin)
    assert ask(page, OPEN, trial.address, settings) == arm
    assert ask(page, STATUS)["records"] == 1
    ask(page, REPORT, {})
    assert_means(trial, [*((each, float(i)) for i, each in enumerate(arms)), (arm, 50.0)], 13)
    again.close()


def test_a_report_that_was_kept_is_taken_out_again(context: BrowserContext, origin: str, server: Served) -> None:
    trial = hosted(server, "withdrawn")
    settings = {"token": trial.token}
    page = tab(context, origin)
    arms = ask(page, COMPANY, trial.address, settings)
    ask(page, OPEN, trial.address, settings)
    ask(page, RECORD, [{"y": 1000.0}])
    ask(page, REPORT, {"keepReport": True})
    page = tab(context, origin)  # which finds the report where the other tab has kept it
    ask(page, OPEN, trial.address, settings)
    assert ask(page, "return (await window.device.withdraw()).state") in ("withdrawing", "withdrawn")
    assert_means(trial, [(arm, float(i)) for i, arm in enumerate(arms)], 12)
    assert ask(page, "return (await window.device.withdraw()).state") == "withdrawn"


def test_a_second_tab_is_the_same_device(context: BrowserContext, origin: str, server: Served) -> None:
    trial = hosted(server, "tabs")
    settings = {"token": trial.token}
    tabs = [tab(context, origin) for _ in range(2)]
    arms = ask(tabs[0], COMPANY, trial.address, settings)
    start = """window.work = (async () => {
        window.device = await foldaway.Device.open(args[0], args[1])
        for (let i = 0; i < 50; i++) await window.device.record({ y: i })
    })()"""
    for page in tabs:
        ask(page, start, trial.address, settings)
    for page in tabs:
        ask(page, "await window.work")
    (arm,) = {ask(page, "return window.device.arm") for page in tabs}
    assert ask(tabs[0], STATUS)["records"] == 100
    for page in tabs:
        page.evaluate("window.work = window.device.report()")
    for page in tabs:
        assert ask(page, "return await window.work")["state"] in ("pending", "counted")
    values = [(each, float(i)) for i, each in enumerate(arms)] + [(arm, float(i)) for i in range(50)] * 2
    assert_means(trial, values, 13)
    assert {ask(page, REPORT, {})["state"] for page in tabs} == {"counted"}
    assert refused(tabs[1], RECORD, [{"y": 1.0}]).startswith("StateError: the record was not taken")


def test_offline_for_a_day_and_for_too_long(context: BrowserContext, origin: str, server: Served) -> None:
    trial = hosted(server, "offline")
    settings = {"token": trial.token, "patience": 1}
    plan = server.ask("GET", f"{trial.path}/plan", trial.token).text
    page = tab(context, origin)
    arms = ask(page, COMPANY, trial.address, settings)
    context.set_offline(True)
    assert refused(page, OPEN, trial.address, settings).startswith("ServerError")
    arm = ask(page, OPEN, trial.address, {**settings, "plan": plan})
    assert arm in ("a", "b")
    ask(page, RECORD, [{"y": 50.0}])
    assert "cannot be reached" in refused(page, REPORT, {})
    later = "const now = Date.now; Date.now = () => now() + 86_400_000 * args[0]"
    ask(page, later, 1)
    assert "cannot be reached" in refused(page, REPORT, {})
    context.set_offline(False)
    assert ask(page, REPORT, {"wait": 1})["state"] in ("pending", "counted")
    assert_means(trial, [*((each, float(i)) for i, each in enumerate(arms)), (arm, 50.0)], 13)
    # Another, that stays offline for longer than the plan lets it keep anything.
    other = hosted(server, "expired")
    ask(page, OPEN, other.address, {"token": other.token})
    context.set_offline(True)
    ask(page, RECORD, [{"y": 1.0}])
    ask(page, later, 31)
    assert ask(page, STATUS)["state"] == "expired"
    context.set_offline(False)


def test_whose_storage_is_cleared_begins_as_a_new_device(context: BrowserContext, origin: str, server: Served) -> None:
    trial = hosted(server, "cleared")
    settings = {"token": trial.token}
    page = tab(context, origin)
    ask(page, COMPANY, trial.address, settings)
    ask(page, OPEN, trial.address, settings)
    ask(page, RECORD, [{"y": 50.0}])
    page.wait_for_timeout(500)  # it enrols beside the record
    session = context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    assert refused(page, RECORD, [{"y": 51.0}]).startswith("StateError: the storage was cleared")
    ask(page, OPEN, trial.address, settings)
    assert ask(page, STATUS) == {"trial": "cleared", "state": "new", "records": 0, "settled": False}
    ask(page, RECORD, [{"y": 52.0}])
    ask(page, REPORT, {})
    about = trial.end()["federated"]
    assert sum(about["enrolled"].values()) == 14  # the device that was lost is missing
    assert sum(about["reported"].values()) == 13


def test_a_page_of_an_origin_that_is_not_let_in(
    browser: Browser, node_package: Path, tmp_path: Path, server: Served
) -> None:
    trial = hosted(server, "shut")
    context = browser.new_context()
    with shop(tmp_path, node_package) as stranger:
        said = refused(tab(context, stranger), OPEN, trial.address, {"token": trial.token, "patience": 0})
    context.close()
    assert said.startswith("ServerError")
    assert "does not let this page's origin in" in said


def test_a_page_sends_records(context: BrowserContext, origin: str, server: Served) -> None:
    tokens = server.create("records")
    page, errors = tab(context, origin), []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    send = """
        const sender = new foldaway.Sender(args[0], { token: args[1] })
        const batch = Array.from({ length: 4 }, (_, i) => ({ group: i % 2 ? "a" : "b", y: i }))
        const receipts = await Promise.all([1, 2, 3, 4, 5].map(() => sender.send(batch)))
        return [receipts.at(-1).durable, sender.held]
    """
    assert ask(page, send, f"{server.url}/v1/trials/records", tokens["ingest_token"]) == [3, 2]
    assert errors == []
