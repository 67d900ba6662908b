"""A device by itself: its arm, what it takes and refuses, what it keeps, and what it forgets."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.errors import CoordinatorWarning, PlanError, RecordError, ServerError, StateError
from foldaway.federated import Device
from foldaway.federated.device.state import DeviceState, MemoryStore
from foldaway.federated.messages import Moments, Received
from foldaway.plan.arms import public_arm
from memory_scan import Marks, scan_files

SETTINGS: dict[str, Any] = {
    "name": "device-trial",
    "arm": "group",
    "arms": {"a": 0.3, "b": 0.7},
    "outcomes": ["y"],
    "covariates": ["x", "kind"],
    "levels": {"kind": ["old", "new"]},
    "federated": "one-message",
    "privacy": {"retention": 1000.0},
}
PLAN = fa.Plan(**SETTINGS)
RECORD = {"y": 12.5, "x": 3.0, "kind": "new"}


def kept_by(device: Device) -> DeviceState:
    with device._store.changing() as kept:
        return msgspec.structs.replace(kept)


# Its arm.


def test_the_arm_is_the_plans_for_an_identity_that_stays_on_the_device(tmp_path: Path) -> None:
    device = Device(PLAN, tmp_path)
    assert device.arm == public_arm(PLAN.arms, PLAN.fingerprint, kept_by(device).identity)
    assert Device(PLAN, tmp_path).arm == device.arm


def test_arms_come_in_the_plans_proportions() -> None:
    arms = Counter(Device(PLAN, store=MemoryStore(DeviceState.new(PLAN))).arm for _ in range(2000))
    assert arms["a"] == pytest.approx(600, abs=5 * (2000 * 0.3 * 0.7) ** 0.5)


def test_two_devices_share_nothing(tmp_path: Path) -> None:
    one, other = (kept_by(Device(PLAN, tmp_path / name)) for name in "ab")
    assert len({one.identity, one.number, other.identity, other.number}) == 4


# What it is made from.


def test_a_plan_may_be_a_file(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.toml")
    assert Device(tmp_path / "plan.toml", tmp_path / "device").plan == PLAN
    assert Device(str(tmp_path / "plan.toml"), tmp_path / "device").plan == PLAN


def test_another_plan_of_the_same_name_is_refused(tmp_path: Path) -> None:
    Device(PLAN, tmp_path)
    other = fa.Plan(**{**SETTINGS, "outcomes": ["z"]})
    with pytest.raises(PlanError, match="under another plan"):
        Device(other, tmp_path)
    Device(PLAN, tmp_path).forget()
    with pytest.raises(PlanError, match=r"under another plan.* remove .*-trial.foldaway-forgotten and begin anew"):
        Device(other, tmp_path)
    (tmp_path / "device-trial.foldaway-forgotten").unlink()
    assert Device(other, tmp_path).status.state == "new"


def test_a_plan_whose_records_do_not_stay_on_devices_is_refused(tmp_path: Path) -> None:
    plan = fa.Plan(name="other", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    with pytest.raises(PlanError, match="federated"):
        Device(plan, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "server="),
        ({"server": "http://127.0.0.1:1"}, "FOLDAWAY_TOKEN"),
        ({"server": "127.0.0.1:1", "token": "fa_x"}, "write http://127.0.0.1:1"),
        ({"server": "http://127.0.0.1:1/v1/trials/another", "token": "fa_x"}, "another"),
    ],
)
def test_without_its_coordinator_a_device_says_what_is_missing(
    arguments: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOLDAWAY_TOKEN", raising=False)
    device = Device(PLAN, tmp_path, patience=0, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoordinatorWarning)
        device.record(RECORD)
    with pytest.raises(ServerError, match=words):
        device.report()
    assert device.status.state == "new"


def test_a_coordinator_that_refuses_is_told_of_with_the_first_record_which_is_taken(tmp_path: Path) -> None:
    device = Device(PLAN, tmp_path, server="http://127.0.0.1:1", token="")
    with pytest.warns(CoordinatorWarning, match=r"the record was taken, but .* wants a token"):
        device.record(RECORD)
    assert device.status.records == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record waits no longer than a moment for its device's enrolment."""
    monkeypatch.setattr("foldaway.federated.device.device._NOT_LONG", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_coordinator_that_is_away_costs_no_record(tmp_path: Path) -> None:
    device = Device(PLAN, tmp_path, server="http://127.0.0.1:1", token="fa_x", patience=0.1)
    device.record(RECORD)
    with pytest.raises(ServerError, match="cannot be reached"):
        device.report()
    device.record(RECORD)
    assert (device.status.state, device.status.records) == ("new", 2)


class Portal(BaseHTTPRequestHandler):
    """What stands between a phone and the network: it answers everything, with a page of its own."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Accept our terms</html>")

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def portal() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_whoever_answers_in_between_costs_no_record_and_doubles_none(tmp_path: Path, portal: str) -> None:
    device = Device(PLAN, tmp_path, server=portal, token="fa_x", patience=0.1)
    device.record(RECORD)
    assert device.status.records == 1
    with pytest.raises(ServerError, match="not a trial's plan") as refused:
        device.report()
    assert "terms" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"verify": "no-such-file.pem"}, {"token": "fa_\u00fc"}])
def test_a_connection_that_cannot_be_made_costs_no_record(tmp_path: Path, wrong: dict[str, Any]) -> None:
    device = Device(PLAN, tmp_path, server="https://127.0.0.1:1", patience=0.1, **{"token": "fa_x", **wrong})
    device.record(RECORD)
    assert device.status.records == 1
    with pytest.raises(ServerError):
        device.report()


def test_the_first_record_is_not_held_up_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However patient the device is when it reports."""
    from foldaway.federated.device import device as module

    monkeypatch.setattr(module, "_NOT_LONG", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        device = Device(PLAN, tmp_path, server=address, token="fa_x", patience=600)
        begun = time.monotonic()
        device.record(RECORD)
        assert time.monotonic() - begun < 60


# Records.


def test_the_factor_is_that_of_all_records_however_often_the_device_starts(tmp_path: Path) -> None:
    plan = fa.Plan(**{**SETTINGS, "weight": "w"})
    rng = np.random.default_rng(1)
    x, y, w = rng.normal(5, 2, 9), rng.normal(-3, 1, 9), rng.uniform(0.5, 2, 9)
    kinds = rng.choice(["old", "new"], 9)
    for i in range(9):
        record = {"x": float(x[i]), "y": float(y[i]), "w": float(w[i]), "kind": str(kinds[i])}
        Device(plan, tmp_path).record(record)
    kept = kept_by(Device(plan, tmp_path))
    R = Moments(b"", "", 9, kept.sums).triangle(4)
    Z = np.column_stack([np.ones(9), x, kinds == "new", y]) * np.sqrt(w)[:, None]
    assert kept.records == 9
    np.testing.assert_allclose(R.T @ R, Z.T @ Z, rtol=1e-12)


def test_mode_delta_keeps_sums(tmp_path: Path) -> None:
    plan = fa.Plan(**{**SETTINGS, "covariates": [], "levels": {}, "outcomes": ["y", "z"], "federated": "delta"})
    device = Device(plan, tmp_path)
    for y in (1.5, 2.0, -7.0):
        device.record({"y": y, "z": 10 * y})
    kept = kept_by(device)
    assert kept.records == 3
    np.testing.assert_array_equal(np.frombuffer(kept.sums), [-3.5, -35.0])


def test_mode_sums_keeps_sums(tmp_path: Path) -> None:
    coefficients = {"center": {"x": 1.0}, "slopes": {"y": {"x": 2.0}}}
    settings = {**SETTINGS, "covariates": ["x"], "levels": {}, "weight": None, "federated": "sums"}
    plan = fa.Plan(**settings, coefficients=coefficients)
    for x, y in ((3.0, 1.5), (0.0, 2.0)):
        Device(plan, tmp_path).record({"x": x, "y": y})
    kept = kept_by(Device(plan, tmp_path))
    assert kept.records == 2
    assert np.frombuffer(kept.sums).tolist() == [3.5, 1.5 - 2 * 2.0 + 2.0 + 2.0]


@pytest.mark.parametrize("mode", ["one-message", "delta", "scores", "sums"])
def test_only_mode_scores_keeps_records(mode: str, tmp_path: Path) -> None:
    marks = Marks(40)
    settings = {**SETTINGS, "federated": mode, "covariates": [], "levels": {}}
    device = Device(fa.Plan(**settings), tmp_path)
    for i in range(marks.count):
        device.record({"y": marks.outcome(i)})
    found = scan_files([tmp_path], marks)
    assert len(found.outcomes) == (marks.count if mode == "scores" else 0)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"y": None}, "'y'|y"),
        ({"y": "secret-text"}, "y"),
        ({"y": float("nan")}, "y"),
        ({"kind": "secret-level"}, "kind"),
        ({"group": "secret-arm"}, "group"),
    ],
)
@pytest.mark.parametrize("drop_limit", [0, 0.05])
def test_a_faulty_record_is_refused_and_not_repeated(
    fault: dict[str, Any], words: str, drop_limit: float, tmp_path: Path
) -> None:
    device = Device(fa.Plan(**{**SETTINGS, "drop_limit": drop_limit}), tmp_path)
    with pytest.raises(RecordError, match=words) as refused:
        device.record({**RECORD, **fault})
    assert "secret" not in str(refused.value)
    assert str(refused.value).startswith("the record was not taken: ")
    assert "batch" not in str(refused.value)
    assert device.status.records == 0


def test_a_record_without_a_column_is_refused_in_words_for_one_record(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"^the record was not taken: it has no column 'x'"):
        Device(PLAN, tmp_path).record({"y": 1.0, "kind": "old"})
    with pytest.raises(RecordError, match=r"no column 'kind'; did you mean 'kinds'\?"):
        Device(PLAN, tmp_path).record({"y": 1.0, "x": 2.0, "kinds": "new"})


def test_the_arm_may_be_named_but_not_another(tmp_path: Path) -> None:
    device = Device(PLAN, tmp_path)
    device.record({**RECORD, "group": device.arm})
    with pytest.raises(RecordError, match="not the arm of this device"):
        device.record({**RECORD, "group": "b" if device.arm == "a" else "a"})
    assert device.status.records == 1


@pytest.mark.parametrize("record", [[RECORD], "y", 12.5, None])
def test_anything_but_a_mapping_is_refused(record: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="one record at a time"):
        Device(PLAN, tmp_path).record(record)


def test_a_plan_for_sites_runs_on_devices_too(tmp_path: Path) -> None:
    plan = fa.Plan(**{**SETTINGS, "unit": "person", "records_per_unit": "together"})
    device = Device(plan, tmp_path)
    device.record(RECORD)
    device.record({**RECORD, "person": "somebody"})
    assert device.status.records == 2


# Its connection.


@pytest.mark.usefixtures("impatient")
def test_a_connection_is_given_back_and_made_anew(tmp_path: Path) -> None:
    with Device(PLAN, tmp_path, server="http://127.0.0.1:1", token="fa_x", patience=0) as device:
        device.record(RECORD)
        for _ in range(2):
            with pytest.raises(ServerError, match="cannot be reached"):
                device.report()
            assert not device._connection._own._asking._http.is_closed  # type: ignore[union-attr]
            http = device._connection._own._asking._http  # type: ignore[union-attr]
            device.close()
            assert http.is_closed
    assert device.status.records == 1


# Forgetting.


def test_a_device_that_has_forgotten_is_out_of_the_trial_for_good(tmp_path: Path) -> None:
    device = Device(PLAN, tmp_path)
    device.record(RECORD)
    device.forget()
    device.forget()
    for again in (device, Device(PLAN, tmp_path)):
        assert again.status.state == "forgotten"
        assert again.report() == again.status
        assert again.status.settled
        with pytest.raises(StateError, match="has forgotten"):
            _ = again.arm
        with pytest.raises(StateError, match="has forgotten"):
            again.record(RECORD)
    assert [path.name for path in tmp_path.iterdir()] == ["device-trial.foldaway-forgotten"]


def test_one_trial_is_forgotten_and_another_goes_on(tmp_path: Path) -> None:
    other = Device(fa.Plan(**{**SETTINGS, "name": "another"}), tmp_path)
    other.record(RECORD)
    Device(PLAN, tmp_path).forget()
    assert Device(other.plan, tmp_path).status.records == 1


@pytest.mark.parametrize("running", [True, False], ids=["running", "started later"])
@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_what_was_kept_too_long_is_deleted(
    mode: str, running: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Marks(1)
    plan = fa.Plan(**{**SETTINGS, "federated": mode, "covariates": [], "levels": {}})
    device = Device(plan, tmp_path)
    device.record({"y": marks.outcome(0)})
    if mode == "scores":
        assert scan_files([tmp_path], marks)
    later = time.time() + PLAN.privacy.retention + 1
    monkeypatch.setattr(time, "time", lambda: later)
    device = device if running else Device(plan, tmp_path)
    assert device.status.state == "expired"
    assert "its report, or its reply, will be missing" in str(device.status)
    assert kept_by(device).sums == b""
    assert not scan_files([tmp_path], marks)
    with pytest.raises(StateError, match="as long as the plan allows"):
        device.record({"y": 1.0})
    assert device.report().settled


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_what_was_kept_too_long_goes_even_if_all_that_is_asked_is_refused(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Marks(1)
    device = Device(fa.Plan(**{**SETTINGS, "federated": mode, "covariates": [], "levels": {}}), tmp_path)
    device.record({"y": marks.outcome(0)})
    later = time.time() + PLAN.privacy.retention + 1
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(StateError, match="as long as the plan allows"):
        device.record({"y": 1.0})
    assert not scan_files([tmp_path], marks)
    assert kept_by(device).sums == b""


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_time_that_is_up_while_a_device_enrols_leaves_nothing_to_report(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = fa.Plan(**{**SETTINGS, "federated": mode})
    later = time.time() + PLAN.privacy.retention + 1
    sent: list[str] = []

    class SlowLink:
        def fingerprint(self, **_: object) -> str:
            return plan.fingerprint

        def coefficients(self) -> None:
            return None

        def post(self, kind: str, message: bytes, **_: object) -> Received:
            sent.append(kind)
            monkeypatch.setattr(time, "time", lambda: later)
            return Received(repeated=False, durable=True)

    device = Device(plan, tmp_path)
    device.record(RECORD)
    device._connection.link = SlowLink()  # type: ignore[assignment]
    assert device.report().state == "expired"
    assert sent == ["enrolments"]
    assert kept_by(device).report == b""


@pytest.mark.parametrize("running", [True, False], ids=["running", "started later"])
def test_a_device_that_leaves_for_too_long_has_forgotten(
    running: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(PLAN, tmp_path)
    device.record(RECORD)
    with device._store.changing() as kept:
        kept.report, kept.sums, kept.stage = kept.sums, b"", "reporting"
    device.forget(keep_report=True)
    assert device.status.state == "leaving"
    later = time.time() + PLAN.privacy.retention + 1
    monkeypatch.setattr(time, "time", lambda: later)
    device = device if running else Device(PLAN, tmp_path)
    assert device.status.state == "forgotten"
    assert [path.name for path in tmp_path.iterdir()] == ["device-trial.foldaway-forgotten"]
    with pytest.raises(StateError, match="has forgotten"):
        _ = device.arm


def test_a_device_whose_file_is_damaged_says_so_and_can_forget(tmp_path: Path) -> None:
    Device(PLAN, tmp_path).record(RECORD)
    (tmp_path / "device-trial.foldaway-device").write_bytes(b"something else" * 100)
    device = Device(PLAN, tmp_path)
    for step in (lambda: device.arm, lambda: device.status, device.report, lambda: device.record(RECORD)):
        with pytest.raises(StateError, match=r"damaged; then the device's forget\(\) deletes it"):
            step()
    assert "damaged" in repr(device)
    device.forget()
    assert device.status.state == "forgotten"
    assert [path.name for path in tmp_path.iterdir()] == ["device-trial.foldaway-forgotten"]


# Weight.


def test_a_device_is_light_until_it_talks() -> None:
    light = (
        "import sys\n"
        "import foldaway.federated\n"
        "assert 'sqlite3' not in sys.modules\n"
        "from foldaway.federated import Device\n"
        "assert not {'httpx', 'scipy.linalg', 'sqlalchemy', 'litestar', 'numba'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_is_nothing_else_in_the_room() -> None:
    import foldaway.federated

    with pytest.raises(AttributeError, match="no attribute 'Gadget'"):
        _ = foldaway.federated.Gadget
