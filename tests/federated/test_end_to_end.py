"""Devices through real HTTP to a real coordinator: the effects are those of an analysis that kept every row."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from clustered import federated
from devices import (
    Hosted,
    assert_as_kept_rows,
    device_in,
    devices_for,
    groups_of,
    records_of,
    report_all,
    state_of,
    wait_for,
)
from foldaway_device import Device, PlanError, ServerError, StateError
from foldaway_device.folder import FolderStore
from foldaway_device.link import HttpLink, Link
from foldaway_device.state import State, new_number
from kept_rows import mean_variance
from plans import in_parts
from served import Served
from servers import Nursery
from sizes import mostly_slow
from trials import make_trial

PETERSEN = Path(__file__).parents[1] / "data" / "petersen_test_data.txt"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from, unrounded=True) as found:
        yield found


def trial_of(mode: str, seed: int, name: str, **others: Any) -> tuple[fa.Plan, fa.Plan, pd.DataFrame]:
    """A plan for kept rows, the same for devices, and the rows."""
    made = {"n": 100, "units": True, "arms": 2, "covariates": 0 if mode == "delta" else 2} | others.pop("made", {})
    plan, rows = make_trial(seed, **made)
    # Moments that make no cohort are not in the coefficients; reports are in the effects all the same.
    settings = {"cohort": 1 if mode == "scores" else 7, "smallest_cell": 2, "name": name} | others
    return plan, federated(plan, mode, **settings), rows


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "one-message": ("one-message", {}),
    "one-message, weighted": ("one-message", {"weighted": True, "arms": 3}),
    "one-message, levels": ("one-message", {"levels": 3, "outcomes": 2, "covariates": 1}),
    "scores": ("scores", {}),
    "scores, weighted": ("scores", {"weighted": True, "arms": 3}),
    "scores, levels": ("scores", {"levels": 3, "outcomes": 2, "covariates": 1}),
    "delta": ("delta", {}),
    "delta, two outcomes": ("delta", {"outcomes": 2, "arms": 3}),
    "sums": ("sums", {"covariates": 0}),
    "sums, adjusted": ("sums", {"levels": 3, "outcomes": 2, "arms": 3}),
}


@pytest.mark.parametrize("case", mostly_slow(CASES, "one-message", "scores", "delta", "sums"))
def test_every_mode_equals_kept_rows(case: str, server: Served) -> None:
    mode, made = CASES[case]
    kept, plan, rows = trial_of(mode, 11, f"equal-{list(CASES).index(case)}", made=made)
    trial = Hosted(server, plan)
    devices = devices_for(plan, rows, trial.link)
    groups = groups_of(devices) if mode == "sums" else None
    states = report_all(devices)
    assert set(states) <= {"waiting for coefficients" if mode == "scores" else "counted", "pending"}
    trial.end(deadline=600 if mode == "scores" else 0)
    states = report_all(devices)
    if mode == "scores":
        trial.end(deadline=0)
        states = report_all(devices)
    assert set(states) == {"counted"}
    answer = trial.end()
    assert_as_kept_rows(trial.effects(), kept, rows, groups=groups)
    about = answer["federated"]
    assert about["enrolled"] == about["reported"]
    assert sum(about["enrolled"].values()) == rows["unit"].nunique()
    assert set(about["missing"].values()) == {0}
    if mode == "scores":
        assert about["integrity"]["verdict"] == "all here"


# Petersen's panel has no arms, but a regression on a constant and x. 25 further devices, in an arm of their own, have
# two records each with outcomes of zero, which are fitted exactly, and such x that the mean of all, at which the
# interacted estimator compares the arms, is zero. The effect is then the constant of Petersen's regression, with its
# error. Divided by x, with weights x², the same rows have the slope as their constant.


def petersen(what: str) -> tuple[pd.DataFrame, float, float]:
    """Rows, and the published coefficient and standard error, clustered by firm."""
    table = pd.read_csv(PETERSEN, sep=r"\s+", names=["firm", "year", "x", "y"])
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    rows = pd.DataFrame({"arm": "firm", "unit": table["firm"], "x": x, "y": y, "w": np.ones(len(x))})
    if what == "slope":
        rows = rows.assign(x=1 / x, y=y / x, w=x**2)
    total = float((rows["w"] * rows["x"]).sum())
    others = {"arm": "none", "unit": np.arange(-50, 0) // 2, "x": [1.0 - total, -1.0] + [1.0, -1.0] * 24}
    other = pd.DataFrame({**others, "y": 0.0, "w": 1.0})
    return pd.concat([other, rows]), *((0.0297, 0.0670) if what == "constant" else (1.0348, 0.0506))


def with_unit(plan: fa.Plan) -> fa.Plan:
    """The plan of an analysis that keeps the rows of the same devices."""
    return msgspec.structs.replace(plan, federated=None, moments={}, unit="unit", records_per_unit="together")


@pytest.mark.slow  # tests/federated/test_against_kept_rows.py has the same panel without HTTP
@pytest.mark.parametrize("mode", ["one-message", "scores"])
@pytest.mark.parametrize("what", ["constant", "slope"])
def test_petersens_errors_with_firms_as_devices(what: str, mode: str, server: Served) -> None:
    rows, coefficient, error = petersen(what)
    plan = fa.Plan(
        name=f"petersen-{mode}-{what}",
        arm="arm",
        arms={"none": 0.5, "firm": 0.5},
        outcomes=["y"],
        covariates=["x"],
        weight="w",
        federated=mode,  # type: ignore[arg-type]
        moments=fa.Moments(estimators=["interacted"]),
        privacy=fa.Privacy(cohort=1, smallest_cell=1),  # the other arm is 25 devices
    )
    trial = Hosted(server, plan)
    devices = devices_for(plan, rows, trial.link, threads=16)
    report_all(devices, rounds=1, threads=16)
    if mode == "scores":
        trial.end(deadline=600)
        report_all(devices, rounds=1, threads=16)
    about = trial.end(deadline=0)["federated"]
    assert about["reported"] == {"none": 25, "firm": 500}
    row = trial.effects().filter(estimator="interacted", se_kind="CR1")[0]
    assert row.estimate == pytest.approx(coefficient, abs=5e-5)
    assert row.std_error is not None
    # In mode one-message the error allows for the mean of x, at which the arms are compared, being that of a sample.
    added = mean_variance(with_unit(plan), rows, "firm", "y") if mode == "one-message" else 0.0
    assert math.sqrt(row.std_error**2 - added) == pytest.approx(error, abs=5e-5)


# Missing, late, repeated, out of order.


class Between:
    """A connection with somebody in between, through whom all messages go."""

    def __init__(self, link: Link, post: Callable[[str, bytes, float], bytes]) -> None:
        self._link = link
        self._post = post

    def expect(self, fingerprint: str) -> None:
        self._link.expect(fingerprint)

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        if body is None:
            return self._link.ask(method, path, until=until)
        return self._post(path, body, until)


@pytest.mark.parametrize("mode", mostly_slow(["one-message", "delta", "sums"], "sums"))
def test_who_drops_out_or_is_late_is_missing_and_the_rest_is_exact(mode: str, server: Served) -> None:
    kept, plan, rows = trial_of(mode, 13, f"dropout-{mode}")
    trial = Hosted(server, plan)
    devices = devices_for(plan, rows, trial.link)
    gone, late, rest = devices[:4], devices[4:7], devices[7:]
    groups = groups_of(rest) if mode == "sums" else None
    report_all(rest)
    about = trial.end(deadline=0)["federated"]
    assert report_all(rest) == ["counted"] * len(rest)
    assert report_all(late) == ["missed"] * 3
    assert sum(about["missing"].values()) == 7
    assert {device.status.state for device in gone} == {"enrolled"}
    units = rows["unit"].unique()
    assert_as_kept_rows(trial.effects(), kept, rows[~rows["unit"].isin(units[:7])], groups=groups)


def test_in_mode_scores_missing_replies_change_the_errors_alone(server: Served) -> None:
    kept, plan, rows = trial_of("scores", 14, "dropout-scores", made={"n": 200, "covariates": 1})
    trial = Hosted(server, plan)
    devices = devices_for(plan, rows, trial.link)
    report_all(devices)
    trial.end(deadline=600)
    gone, late, rest = devices[:4], devices[4:6], devices[6:]
    report_all(rest)
    about = trial.end(deadline=0)["federated"]
    assert report_all(late) == ["missed"] * 2
    assert {device.report().state for device in gone} == {"missed"}
    assert sum(about["missing"].values()) == 6
    assert about["integrity"]["verdict"] == "some missing"
    from kept_rows import fitted

    for row in trial.effects().filter(se_kind="CR0"):
        estimate, error, _ = fitted(kept, rows, row.estimator, row.arm, row.outcome, "CR0")
        assert row.estimate == pytest.approx(estimate, rel=1e-9, abs=1e-9 * error)
        assert row.std_error == pytest.approx(error, rel=0.3)
        assert row.std_error != pytest.approx(error, rel=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("mode", mostly_slow(["one-message", "scores", "delta", "sums"], "scores"))
def test_repeats_duplicates_and_any_order_change_nothing(mode: str, server: Served) -> None:
    """Every message goes out again and again, in any order, also long after it was durable."""
    kept, plan, rows = trial_of(mode, 15, f"repeats-{mode}", made={"n": 60})
    trial = Hosted(server, plan)
    chance = random.Random(15)
    sent: list[tuple[str, bytes]] = []
    link = trial.link

    def repeating(path: str, message: bytes, until: float) -> bytes:
        answer = link.ask("POST", path, message, until=until)
        sent.append((path, message))
        for path_again, again in chance.sample(sent, min(2, len(sent))):
            if path_again != "/enrolments" or open_still:  # later it takes no more devices, and says so
                assert json.loads(link.ask("POST", path_again, again, until=until))["repeated"]
        return answer

    open_still = True
    trial.link = Between(link, repeating)
    devices = devices_for(plan, rows, trial.link)
    groups = groups_of(devices) if mode == "sums" else None
    chance.shuffle(devices)
    report_all(devices)
    open_still = False
    trial.end(deadline=600)
    chance.shuffle(devices)
    report_all(devices)
    about = trial.end(deadline=0)["federated"]
    assert report_all(devices) == ["counted"] * len(devices)
    assert sum(about["reported"].values()) == sum(about["enrolled"].values()) == len(devices)
    assert_as_kept_rows(trial.effects(), kept, rows, groups=groups)


@pytest.mark.once
def test_a_lost_answer_is_as_good_as_a_late_one(server: Served) -> None:
    """The coordinator takes the message, but the device never hears of it; it tries again and is counted once."""
    kept, plan, rows = trial_of("one-message", 16, "lost", made={"n": 60})
    trial = Hosted(server, plan)
    link, chance, lossy = trial.link, random.Random(16), True

    def losing(path: str, message: bytes, until: float) -> bytes:
        answer = link.ask("POST", path, message, until=until)
        if lossy and chance.random() < 0.5:
            raise ServerError("the server cannot be reached (ReadTimeout).")
        return answer

    trial.link = Between(link, losing)
    devices = devices_for(plan, rows, trial.link)
    left = list(devices)
    for _ in range(60):
        for device in list(left):
            try:
                if device.report().settled:
                    left.remove(device)
            except ServerError:
                continue
        if len(left) < plan.privacy.cohort:
            break
    lossy = False
    report_all(left)  # who is left has been lucky with no message yet, or is short of a cohort
    trial.end(deadline=0)
    assert report_all(devices) == ["counted"] * len(devices)
    assert_as_kept_rows(trial.effects(), kept, rows)


# The front door.


def test_a_device_is_found_again_and_says_where_it_stands(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Hosted(server, simple_plan("front", cohort=1))
    with pytest.raises(PlanError, match="rejects this token"):
        Device.open(trial.address, store=tmp_path / "home", token="fa_nobody")
    monkeypatch.setenv("FOLDAWAY_TOKEN", f"{trial.token}\n")  # as from a file
    device = Device.open(trial.address, store=tmp_path / "home")
    assert device.arm in trial.plan.arms
    device.record({"y": 12.5})
    wait_for(device)
    assert trial.status()["enrolled"][device.arm] == 1
    assert Device.open(trial.address, store=tmp_path / "home").report().state == "counted"
    assert str(device.report()) == (
        "front: counted (1 record taken): its part is done, and nothing of its records is kept but the report, if it "
        "was asked to keep it."
    )
    device.forget()
    assert device.status.state == "forgotten"
    assert Device.open(trial.address, store=tmp_path / "home").status.state == "forgotten"


def test_a_device_without_records_has_nothing_to_report(server: Served) -> None:
    _, plan, _ = trial_of("one-message", 17, "nothing")
    trial = Hosted(server, plan)
    device = device_in(plan, plan.control, trial.link)
    assert device.report(wait=5).state == "new"
    assert sum(trial.status()["enrolled"].values()) == 0


def test_a_number_that_the_coordinator_does_not_know_is_enrolled_again(server: Served) -> None:
    """As after a coordinator's restore from an older copy."""
    _, plan, _ = trial_of("delta", 18, "unknown", cohort=1)
    trial = Hosted(server, plan)
    device = device_in(plan, plan.control, trial.link)
    device.record(dict.fromkeys(plan.measured, 1.0))
    wait_for(device)
    with device._custody.changing() as kept:
        kept.number = new_number()  # enrolled, as the device thinks
    assert device.report().state == "counted"


@pytest.mark.once
def test_a_kill_between_enrolment_and_its_note_costs_nothing(server: Served) -> None:
    _, plan, rows = trial_of("one-message", 19, "noted", cohort=1)
    trial = Hosted(server, plan)
    devices = devices_for(plan, rows, trial.link)
    report_all(devices[1:])
    with devices[0]._custody.changing() as kept:
        kept.enrolled = False
    trial.end(deadline=600)  # takes no more devices, but reports of those it has
    assert devices[0].report().state == "counted"


def test_nobody_who_was_never_enrolled_gets_in_at_the_end(server: Served) -> None:
    _, plan, rows = trial_of("one-message", 20, "stranger", cohort=1)
    trial = Hosted(server, plan)
    report_all(devices_for(plan, rows, trial.link))
    trial.end(deadline=600)
    stranger = device_in(plan, plan.control, trial.link)
    stranger.record(next(records[0] for arm, records in records_of(plan, rows) if arm == plan.control))
    assert stranger.report().state == "missed"


def test_the_status_says_what_the_last_report_did(server: Served, tmp_path: Path) -> None:
    trial = Hosted(server, simple_plan("status", federated="scores"))
    device = hosted_device(trial, tmp_path / "home")
    device.record({"y": 10.0})
    wait_for(device)
    states = [str(device.status), str(device.report()), str(device.status)]
    for arm in "ab":
        other = device_in(trial.plan, arm, trial.link)
        other.record({"y": 2.0})
        other.report()
    states += [str(device.report()), str(device.status)]
    device.record({"y": 11.0})
    states.append(str(device.status))
    expected = ["enrolled", "pending", "pending", "waiting for coefficients", "waiting for coefficients", "enrolled"]
    assert [state.removeprefix("status: ").partition(" (")[0] for state in states] == expected


def test_who_joins_a_trial_that_has_ended_is_told_so_and_keeps_nothing(server: Served, tmp_path: Path) -> None:
    trial = Hosted(server, simple_plan("over"))
    device = hosted_device(trial, tmp_path / "home")
    trial.end(without_effects=True)
    device.record({"y": 10.0})
    wait_for(device)
    assert device.status.state == "missed"


def test_what_travels_says_nothing_about_who(server: Served) -> None:
    """Of all a device keeps, its report number and its arm leave it, and what its records came to."""
    _, plan, rows = trial_of("scores", 21, "anonymous", cohort=1)
    trial = Hosted(server, plan)
    sent: list[bytes] = []
    link = trial.link

    def listening(path: str, message: bytes, until: float) -> bytes:
        sent.append(message)
        return link.ask("POST", path, message, until=until)

    trial.link = Between(link, listening)
    devices = devices_for(plan, rows, trial.link)
    report_all(devices)
    trial.end(deadline=600)
    report_all(devices)
    identities = {state_of(device).identity.encode() for device in devices}
    assert len(identities) == len(devices)
    assert not any(identity in b"".join(sent) for identity in identities)
    # A report cannot be tied to the moments that came before it: their numbers differ.
    numbers = [msgspec.json.decode(message)["number"] for message in sent]
    assert len(set(numbers)) == 2 * len(devices)


# Forgetting on the way, another plan, other refusals.


def simple_plan(name: str, **others: Any) -> fa.Plan:
    settings = {"name": name, "arm": "g", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"], "federated": "one-message"}
    return fa.Plan(**in_parts({**settings, "cohort": 3, "smallest_cell": 1, **others}))


def hosted_device(trial: Hosted, folder: Path) -> Device:
    return Device.open(trial.address, store=folder, token=trial.token)


def kept_in(folder: Path, trial: str) -> State:
    """What is kept of a trial."""
    with FolderStore(folder).changing(trial) as held:
        assert held.state is not None
        return held.state


def pending_device(trial: Hosted, folder: Path) -> Device:
    """One whose report waits for others to make up a cohort."""
    device = hosted_device(trial, folder)
    device.record({"y": 10.0})
    assert device.report().state == "pending"
    return device


@pytest.mark.once
@pytest.mark.parametrize("mode", mostly_slow(["one-message", "delta", "sums"], "sums"))
def test_who_reports_and_forgets_is_counted_even_if_the_coordinator_crashes(
    mode: str, tmp_path: Path, served_from: Nursery
) -> None:
    """The report waits for its cohort in memory alone, which a crash ends: only the device still has it."""
    plan = simple_plan(f"forgetting-{mode}", federated=mode)
    server = Served(tmp_path / "server", served_from)
    with server:
        trial = Hosted(server, plan)
        others = [device_in(plan, arm, trial.link) for arm in "ab"]
        for other in others:
            other.record({"y": 2.0})
        device = hosted_device(trial, tmp_path / "home")
        device.record({"y": 10.0})
        device.record({"y": 12.0})
        assert device.report().state == "pending"
        with pytest.raises(StateError, match="not taken: this device has sent its report, and its part"):
            device.record({"y": 14.0})
        device.forget(keep_report=True)
        device.forget(keep_report=True)
        server.kill()
        server.start()
        again = hosted_device(trial, tmp_path / "home")
        assert again.status.state == "leaving"
        assert again.report().state == "leaving"
        assert [other.report().state for other in others] == ["pending", "counted"]
        assert again.report().state == "forgotten"
        about = trial.end(deadline=0, without_effects=True)["federated"]
        assert sum(about["reported"].values()) == 3
        assert vars(kept_in(tmp_path / "home", plan.name)) == vars(State(plan.fingerprint, stage="forgotten"))


def test_of_moments_that_are_on_their_way_the_message_alone_is_kept(server: Served, tmp_path: Path) -> None:
    plan = simple_plan("leaving-moments", federated="scores")
    trial = Hosted(server, plan)
    device = hosted_device(trial, tmp_path / "home")
    device.record({"y": 10.0})
    assert device.report().state == "pending"
    device.record({"y": 11.0})  # never reported: it goes at once
    device.forget(keep_report=True)
    kept = state_of(device)
    assert (kept.identity, kept.sums, kept.covered, kept.report, kept.records) == ("", [], [], "", 0)
    assert kept.moments
    with pytest.raises(StateError, match="has forgotten"):
        device.record({"y": 1.0})
    with pytest.raises(StateError, match="has forgotten"):
        _ = device.arm
    for arm in "ab":
        other = device_in(plan, arm, trial.link)
        other.record({"y": 2.0})
        other.report()
    assert device.report().state == "forgotten"


def test_who_forgets_keeps_nothing_reported_or_not(server: Served, tmp_path: Path) -> None:
    trial = Hosted(server, simple_plan("gone-at-once"))
    device = pending_device(trial, tmp_path / "home")
    device.forget()
    mark = kept_in(tmp_path / "home", trial.plan.name)
    assert vars(mark) == vars(State(trial.plan.fingerprint, stage="forgotten"))


def test_a_device_that_leaves_waits_if_it_is_told_to(server: Served, tmp_path: Path) -> None:
    trial = Hosted(server, simple_plan("leaving-slowly"))
    device = pending_device(trial, tmp_path / "home")
    device.forget(keep_report=True)
    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(device.report, wait=30)
        others = [device_in(trial.plan, arm, trial.link) for arm in "ab"]
        for other in others:
            other.record({"y": 2.0})
            other.report()
        assert left.result().state == "forgotten"


def test_who_leaves_a_trial_that_has_ended_keeps_nothing(server: Served, tmp_path: Path) -> None:
    trial = Hosted(server, simple_plan("leaving-late"))
    device = pending_device(trial, tmp_path / "home")
    device.forget(keep_report=True)
    trial.end(without_effects=True)  # leaves out who is no cohort
    assert device.report().state == "forgotten"


@pytest.mark.parametrize("running", [True, False], ids=["running", "started later"])
@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_who_may_not_keep_a_pending_report_any_longer_does_not_say_that_it_is_missing(
    mode: str, running: bool, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Hosted(server, simple_plan(f"too-long-{mode}-{running}", federated=mode))
    device = pending_device(trial, tmp_path / "home")
    later = time.time() + trial.plan.privacy.retention + 1
    monkeypatch.setattr(time, "time", lambda: later)
    device = device if running else hosted_device(trial, tmp_path / "home")
    for status in (device.report(), device.status):
        assert status.state == "expired while pending"
        assert status.settled
        assert "whether it was counted is not known" in str(status)
    kept = state_of(device)
    assert (kept.sums, kept.covered, kept.moments, kept.report) == ([], [], "", "")
    with pytest.raises(StateError, match="not known"):
        device.record({"y": 1.0})
    others = [device_in(trial.plan, arm, trial.link) for arm in "ab"]
    for other in others:
        other.record({"y": 2.0})
    states = [other.report().state for other in others]  # a cohort is three: its report is counted
    assert states == ["pending", "waiting for coefficients" if mode == "scores" else "counted"]


def test_a_device_sends_nothing_to_a_coordinator_with_another_plan(server: Served, tmp_path: Path) -> None:
    mine = simple_plan("two-plans", outcomes=["clicks", "revenue"], cohort=1)
    theirs = simple_plan("two-plans", outcomes=["revenue", "clicks"], cohort=1)
    trial = Hosted(server, theirs)
    told: list[Exception] = []
    device = Device.open(
        trial.address, token=trial.token, plan=mine.canonical(), store=tmp_path / "home", on_refusal=told.append
    )
    device.record({"clicks": 1.0, "revenue": 900.0})
    wait_for(device)
    assert "under another plan" in str(*told)
    with pytest.raises(ServerError, match="under another plan"):
        device.report()
    assert device.status.state == "new"
    assert sum(trial.status()["enrolled"].values()) == 0


def test_a_coordinator_whose_plan_changes_meanwhile_is_refused(server: Served) -> None:
    one, other = Hosted(server, simple_plan("first-plan")), Hosted(server, simple_plan("second-plan"))
    link = HttpLink(one.address, one.token)
    link.expect(one.plan.fingerprint)
    assert link.ask("GET", "/plan", until=0.0) == one.plan.canonical()
    link._url, link._token = other.address, other.token  # as if another server answered there
    with pytest.raises(ServerError, match="under another plan"):
        link.ask("GET", "/plan", until=0.0)


def test_a_refusal_that_is_not_the_end_costs_no_record(server: Served) -> None:
    """As of a proxy, or of a trial of the same name that is not one for devices."""
    plan = simple_plan("refused", cohort=1)
    trial = Hosted(server, plan)
    link, refuses = trial.link, True

    def refusing(path: str, message: bytes, until: float) -> bytes:
        if refuses:
            raise ServerError("this trial takes records, not reports of devices.", 409)
        return link.ask("POST", path, message, until=until)

    device = device_in(plan, "a", Between(link, refusing))
    device._on_refusal = lambda refused: None
    device.record({"y": 1.0})
    with pytest.raises(ServerError, match="takes records"):
        device.report()
    assert not device.status.settled
    refuses = False
    assert device.report().state == "counted"
