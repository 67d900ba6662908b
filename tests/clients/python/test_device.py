"""A device by itself: its arm, what it takes and refuses, what it keeps, how long it waits, and what it forgets."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from devices import device_in, state_of, wait_for
from foldaway.plan.arms import public_arm
from foldaway_device import Device, PlanError, RecordError, ServerError, StateError
from foldaway_device.factor import rows_of
from foldaway_device.floats import from_base64
from memory_scan import Marks, scan_files

SETTINGS: dict[str, Any] = {
    "name": "device-trial",
    "arm": "group",
    "arms": {"a": 0.3, "b": 0.7},
    "outcomes": ["y"],
    "covariates": ["x", {"column": "kind", "levels": ["old", "new"]}],
    "federated": "one-message",
    "privacy": {"retention": 1000.0},
}
PLAN = fa.Plan(**SETTINGS)
PLAIN = {**SETTINGS, "covariates": []}
RECORD = {"y": 12.5, "x": 3.0, "kind": "new"}
NOBODY = "http://127.0.0.1:1/v1/trials/device-trial"


def device_of(plan: fa.Plan, folder: Path, **others: Any) -> Device:
    return Device.open(plan.canonical(), store=folder, **others)


def addressed(address: str, folder: Path, **others: Any) -> Device:
    given: dict[str, Any] = {"token": "fa_x", "plan": PLAN.canonical(), "store": folder, **others}
    return Device.open(address, **given)


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time() + PLAN.privacy.retention + 1
    monkeypatch.setattr(time, "time", lambda: now)


# Its arm.


def test_the_arm_is_the_plans_for_an_identity_that_stays_on_the_device(tmp_path: Path) -> None:
    device = device_of(PLAN, tmp_path)
    assert device.arm == public_arm(PLAN.arms, PLAN.fingerprint, from_base64(state_of(device).identity))
    assert device_of(PLAN, tmp_path).arm == device.arm
    other = device_of(PLAN, tmp_path / "other")
    assert len({getattr(state_of(each), name) for each in (device, other) for name in ("identity", "number")}) == 4


def test_arms_come_in_the_plans_proportions() -> None:
    arms = Counter(device_in(PLAN, None).arm for _ in range(2000))
    assert arms["a"] == pytest.approx(600, abs=5 * (2000 * 0.3 * 0.7) ** 0.5)


# What it is made from.


def test_a_plan_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(PLAN.canonical())
    assert Device.open(tmp_path / "plan.json", store=tmp_path / "device").fingerprint == PLAN.fingerprint


def test_another_plan_of_the_same_name_is_refused(tmp_path: Path) -> None:
    device_of(PLAN, tmp_path)
    other = fa.Plan(**{**SETTINGS, "outcomes": ["z"]})
    with pytest.raises(PlanError, match="under another plan"):
        device_of(other, tmp_path)
    device_of(PLAN, tmp_path).forget()
    with pytest.raises(PlanError, match="under another plan"):
        device_of(other, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"federated": None}, r"no \[federated\] table"),
        ({"federated": {"mode": "telepathy"}}, "does not have the plan's mode 'telepathy'; it has delta, one-message"),
        ({"outcomes": [{"kind": "median", "column": "y"}]}, "outcomes of the kind 'median'"),
        ({"outcomes": 3}, "not a trial's plan"),
    ],
)
def test_a_plan_that_is_none_for_it_is_refused_before_anything_is_kept(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    plan = msgspec.json.decode(PLAN.canonical()) | change
    if plan["federated"] is None:
        del plan["federated"]
    with pytest.raises(PlanError, match=words):
        Device.open(msgspec.json.encode(plan), store=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "others", "words"),
    [
        ("nonsense", {}, "form https://host/v1/trials/NAME"),
        ("http://127.0.0.1:1", {}, "form https://host/v1/trials/NAME"),
        (NOBODY, {"token": None}, "FOLDAWAY_TOKEN"),
        (NOBODY, {"token": "a b"}, "give one token"),
        ("http://127.0.0.1:1/v1/trials/another", {}, "another trial"),
        (NOBODY, {"plan": Path("nowhere.json")}, "cannot be read: No such file"),
        (NOBODY, {"plan": b"<html>"}, "not a trial's plan"),
    ],
)
def test_what_it_cannot_begin_with_is_told(
    address: str, others: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOLDAWAY_TOKEN", raising=False)
    with pytest.raises(PlanError, match=words):
        addressed(address, tmp_path, **others)


def test_without_an_address_it_does_all_but_report(tmp_path: Path) -> None:
    device = device_of(PLAN, tmp_path)
    device.record(RECORD)
    with pytest.raises(PlanError, match="open it with the trial's address"):
        device.report()
    assert device.status.state == "new"


# Without a server, or with one that does not help.


class Portal(BaseHTTPRequestHandler):
    """What stands between a phone and the network: it answers everything, with a page of its own."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Accept our terms</html>")

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Elsewhere(Portal):
    """It sends everybody to another page, which must not get to see a token."""

    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(307)
        self.send_header("Location", "/login")
        self.end_headers()

    do_POST = do_GET


def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/trials/device-trial"
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1/trials/device-trial"


@pytest.fixture
def away() -> str:
    return NOBODY


@pytest.fixture
def portal() -> Iterator[str]:
    yield from serving(Portal)


@pytest.mark.parametrize("server", ["away", "silent", "portal"])
def test_a_server_that_does_not_help_costs_no_record_and_no_time(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    told: list[Exception] = []
    device = addressed(request.getfixturevalue(server), tmp_path, on_refusal=told.append)
    in_time: list[bool] = []
    for act in (lambda: device.record(RECORD), lambda: device.record(RECORD)):
        in_time.append(_within(4.0, act))  # which is less than anybody waits for a server
    with pytest.raises(ServerError) as refused:
        device.report(timeout=0.2)
    assert "terms" not in str(refused.value)
    assert in_time == [True, True]
    device.record(RECORD)
    assert (device.status.state, device.status.records) == ("new", 3)


def _within(seconds: float, act: Callable[[], None]) -> bool:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun < seconds


def test_a_token_is_shown_to_nobody_else(tmp_path: Path) -> None:
    Elsewhere.seen = []
    for address in serving(Elsewhere):
        with pytest.raises(ServerError, match="answered 307"):
            Device.open(address, token="fa_x", store=tmp_path)
        assert Elsewhere.seen == ["Bearer fa_x"]


def test_without_its_plan_it_does_not_wait_for_a_silent_server(tmp_path: Path, silent: str) -> None:
    with pytest.raises(ServerError):
        Device.open(silent, token="fa_x", store=tmp_path, timeout=0.2)


def test_what_a_wrong_token_is_told_with_goes_to_the_app(tmp_path: Path) -> None:
    """By default as a warning, beside the record, which is taken."""

    class Guarded(Portal):
        def do_GET(self) -> None:
            self.send_error(401)

        do_POST = do_GET

    for address in serving(Guarded):
        device = addressed(address, tmp_path)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            device.record(RECORD)
            wait_for(device)
        assert "the record was taken, but the server rejects this token" in str(told[0].message)
        assert device.status.records == 1


# Records.


def test_the_factor_is_that_of_all_records_however_often_the_device_starts(tmp_path: Path) -> None:
    plan = fa.Plan(**{**SETTINGS, "weight": "w"})
    rng = np.random.default_rng(1)
    x, y, w = rng.normal(5, 2, 9), rng.normal(-3, 1, 9), rng.uniform(0.5, 2, 9)
    kinds = rng.choice(["old", "new"], 9)
    for i in range(9):
        device_of(plan, tmp_path).record({"x": x[i], "y": y[i], "w": float(w[i]), "kind": str(kinds[i])})
    kept = state_of(device_of(plan, tmp_path))
    R = np.array(list(rows_of(kept.sums)))
    Z = np.column_stack([np.ones(9), x, kinds == "new", y]) * np.sqrt(w)[:, None]
    assert kept.records == 9
    np.testing.assert_allclose(R.T @ R, Z.T @ Z, rtol=1e-12)


@pytest.mark.parametrize("mode", ["one-message", "delta", "scores", "sums"])
def test_no_mode_keeps_records(mode: str, tmp_path: Path) -> None:
    marks = Marks(40)
    device = device_of(fa.Plan(**{**PLAIN, "federated": mode}), tmp_path)
    for i in range(marks.count):
        device.record({"y": marks.outcome(i)})
    texts = [repr(marks.outcome(i)).encode() for i in range(marks.count)]
    assert not scan_files([tmp_path], marks)
    assert not any(text in path.read_bytes() for path in tmp_path.iterdir() for text in texts)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"y": None}, r"y \(null\)"),
        ({"y": "secret-text"}, r"y \(wrong type\)"),
        ({"y": float("nan")}, r"y \(NaN\)"),
        ({"y": float("-inf")}, r"y \(infinity\)"),
        ({"y": 10**400}, r"y \(too large"),
        ({"y": 1j, "x": None}, r"x \(null\); y \(wrong type\)"),
        ({"kind": "secret-level"}, r"kind \(unknown level\)"),
        ({"kind": 2.5}, r"kind \(wrong type\)"),
        ({"group": "secret-arm"}, "'group' is not the arm of this device"),
    ],
)
def test_a_faulty_record_is_refused_whole_and_not_repeated(fault: dict[str, Any], words: str, tmp_path: Path) -> None:
    device = device_of(PLAN, tmp_path)
    with pytest.raises(RecordError, match=words) as refused:
        device.record({**RECORD, **fault})
    assert str(refused.value).startswith("the record was not taken: ")
    assert "secret" not in str(refused.value)
    assert device.status.records == 0


def test_the_arm_may_be_named_as_the_column_says_it(tmp_path: Path) -> None:
    plan = fa.Plan(
        **{**SETTINGS, "arms": {"a": {"share": 0.3, "values": "0"}, "b": {"share": 0.7, "values": ["1", "one"]}}}
    )
    device = device_of(plan, tmp_path)
    device.record({**RECORD, "group": int(plan.arms.said[device.arm][0])})
    with pytest.raises(RecordError, match="not the arm of this device"):
        device.record({**RECORD, "group": 1 if device.arm == "a" else 0})
    assert device.status.records == 1


def test_anything_but_a_mapping_is_refused(tmp_path: Path) -> None:
    not_one: Any
    for not_one in ([RECORD], "y", 12.5, None):
        with pytest.raises(RecordError, match="one record at a time"):
            device_of(PLAN, tmp_path).record(not_one)


def test_it_takes_no_more_records_than_the_plan_says(tmp_path: Path) -> None:
    plan = fa.Plan(**{**PLAIN, "federated": fa.Federated("delta", device_records=2)})
    device = device_of(plan, tmp_path)
    device.record({"y": 5.0})
    device.record({"y": 0.5})
    with pytest.raises(RecordError, match="no more records of a device than 2"):
        device.record({"y": 0.5})
    assert device.status.records == 2


def test_a_plan_for_sites_runs_on_devices_too(tmp_path: Path) -> None:
    device = device_of(fa.Plan(**{**SETTINGS, "unit": "person", "records_per_unit": "together"}), tmp_path)
    device.record(RECORD)
    device.record({**RECORD, "person": "somebody"})
    assert device.status.records == 2


# Forgetting.


def test_a_device_that_has_forgotten_is_out_of_the_trial_for_good(tmp_path: Path) -> None:
    device = device_of(PLAN, tmp_path)
    device.record(RECORD)
    other = device_of(fa.Plan(**{**SETTINGS, "name": "another"}), tmp_path)
    other.record(RECORD)
    device.forget()
    device.forget()
    for again in (device, device_of(PLAN, tmp_path)):
        assert again.status.state == "forgotten"
        assert again.report() == again.status
        assert again.status.settled
        with pytest.raises(StateError, match="has forgotten"):
            _ = again.arm
        with pytest.raises(StateError, match="has forgotten"):
            again.record(RECORD)
    assert other.status.records == 1


@pytest.mark.parametrize("running", [True, False], ids=["running", "started later"])
@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_what_was_kept_too_long_is_deleted(
    mode: str, running: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = fa.Plan(**{**PLAIN, "federated": mode})
    device = device_of(plan, tmp_path)
    device.record({"y": 1234.5})
    assert b"1234.5" in (tmp_path / "device-trial.foldaway-device").read_bytes()
    later(monkeypatch)
    device = device if running else device_of(plan, tmp_path)
    with pytest.raises(StateError, match="as long as the plan allows"):  # whatever is asked and refused
        device.record({"y": 1.0})
    assert b"1234.5" not in (tmp_path / "device-trial.foldaway-device").read_bytes()
    assert device.status.state == "expired"
    assert state_of(device).sums == []
    assert device.status.settled


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_time_that_is_up_while_a_device_enrols_leaves_nothing_to_report(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = fa.Plan(**{**SETTINGS, "federated": mode})
    sent: list[str] = []

    class SlowLink:
        def expect(self, fingerprint: str) -> None:
            assert fingerprint == plan.fingerprint

        def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
            if method == "GET":
                return plan.canonical()
            sent.append(path)
            later(monkeypatch)
            return b'{"repeated": false, "durable": true}'

    device = device_in(plan, None, SlowLink())
    device._join_after = float("inf")
    device.record(RECORD)
    assert device.report().state == "expired"
    assert sent == ["/enrolments"]
    assert state_of(device).report == ""


@pytest.mark.parametrize("running", [True, False], ids=["running", "started later"])
def test_a_device_that_leaves_for_too_long_has_forgotten(
    running: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_of(PLAN, tmp_path)
    device.record(RECORD)
    with device._custody.changing() as kept:
        kept.report, kept.sums, kept.stage = "report", [], "reporting"
    device.forget(keep_report=True)
    assert device.status.state == "leaving"
    later(monkeypatch)
    device = device if running else device_of(PLAN, tmp_path)
    assert device.status.state == "forgotten"
    with pytest.raises(StateError, match="has forgotten"):
        _ = device.arm


def test_a_device_whose_file_is_damaged_says_so_and_can_forget(tmp_path: Path) -> None:
    device_of(PLAN, tmp_path).record(RECORD)
    (tmp_path / "device-trial.foldaway-device").write_bytes(b"something else" * 100)
    device = device_of(PLAN, tmp_path)
    steps: tuple[Callable[[], object], ...] = (lambda: device.status, device.report)
    for step in steps:
        with pytest.raises(StateError, match=r"damaged; then the device's forget\(\) deletes it"):
            step()
    with pytest.raises(StateError, match="cannot be read"):
        device.record(RECORD)
    assert "damaged" in repr(device)
    device.forget()
    assert device.status.state == "forgotten"
