"""The npm package's devices in Node, against a real server: killed at any moment, without a network, two at a time."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from clustered import federated
from devices import Hosted, assert_as_kept_rows, records_of
from driven import Driven, Refused
from foldaway.plan.arms import device_group
from served import Served
from servers import Nursery
from sizes import mostly_slow
from trials import make_trial


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from, unrounded=True) as found:
        yield found


def hosted(server: Served, name: str, mode: str = "sums", **settings: Any) -> Hosted:
    """A trial with two arms and one outcome, y."""
    plan = fa.Plan(
        name=name,
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        federated=mode,  # type: ignore[arg-type]
        privacy=fa.Privacy(cohort=5, smallest_cell=2, **settings),
    )
    return Hosted(server, plan)


def options(trial: Hosted, folder: Path, **others: Any) -> dict[str, Any]:
    return {"token": trial.token, "folder": str(folder), **others}


def kept(folder: Path) -> dict[str, Any]:
    """What a device keeps; it may enrol meanwhile, and put another file in the place of this one."""
    for _ in range(100):
        try:
            (file,) = folder.glob("*.foldaway-kept")
            found: dict[str, Any] = json.loads(file.read_text())["kept"]
            return found
        except (ValueError, FileNotFoundError):
            time.sleep(0.01)
    raise AssertionError("the device keeps nothing")


def company(node: Driven, trial: Hosted, folder: Path) -> list[str]:
    """Six further devices in each arm, each with its place as its only record, that have reported; their arms."""
    arms: list[str] = []
    for i in range(1000):
        name = f"other{len(arms)}"
        arm = node.ask(name, "open", trial.address, options(trial, folder / f"folder{i}"))
        if arms.count(arm) < 6:
            node.ask(name, "record", [{"y": float(len(arms))}])
            arms.append(arm)
            assert node.ask(name, "report")["state"] in ("counted", "pending")
        if len(arms) == 12:
            return arms
    raise AssertionError("one of the arms does not come")


def assert_means(trial: Hosted, arms: Sequence[str], values: Sequence[float]) -> None:
    """Whose records are in the trial, by the difference of their means."""
    answer = trial.end()
    counts = {arm: list(arms).count(arm) for arm in "ab"}
    assert answer["federated"]["reported"] == answer["federated"]["enrolled"] == counts
    found = trial.effects()[0].estimate
    frame = pd.DataFrame({"arm": arms, "y": values}).groupby("arm")["y"].mean()
    assert found == pytest.approx(frame["b"] - frame["a"], rel=1e-9)


@pytest.mark.parametrize("mode", mostly_slow(["sums", "delta", "one-message"], "sums"))
def test_every_mode_equals_kept_rows(mode: str, server: Served, node_package: Path, tmp_path: Path) -> None:
    plan, rows = make_trial(7, n=120, units=True, arms=2, covariates=0 if mode == "delta" else 2)
    trial = Hosted(server, federated(plan, mode, name=f"node-{mode}", cohort=7, smallest_cell=2))
    groups, counted = [], set()
    with Driven(node_package) as node:
        units = list(dict.fromkeys(rows["unit"]))
        for unit, (_, records) in zip(units, records_of(trial.plan, rows), strict=True):
            folder = tmp_path / str(unit)
            arm = node.ask(str(unit), "open", trial.address, options(trial, folder))
            rows.loc[rows["unit"] == unit, plan.arm] = arm
            node.ask(str(unit), "record", records)
            identity = base64.b64decode(kept(folder)["identity"])
            groups.append(device_group(trial.plan.groups, trial.plan.fingerprint, identity))
            node.ask(str(unit), "report")
        trial.end(deadline=0)
        for unit in units:
            counted.add(node.ask(str(unit), "report")["state"])
            assert not kept(tmp_path / str(unit))["report"]
    assert counted == {"counted"}
    assert_as_kept_rows(trial.effects(), plan, rows, groups=groups if mode == "sums" else None)


@pytest.mark.once
@pytest.mark.parametrize("seed", mostly_slow(list(range(6)), 0))
def test_killed_at_any_moment_its_records_count_once(
    seed: int, server: Served, node_package: Path, tmp_path: Path
) -> None:
    trial, rng = hosted(server, f"killed-{seed}"), random.Random(seed)
    records, mine = [{"y": 100.0}, {"y": 101.0}, {"y": 102.0}], tmp_path / "mine"
    with Driven(node_package) as node:
        arms = company(node, trial, tmp_path)
    arm, kills = "", 0
    while True:
        with Driven(node_package) as node:
            found = node.ask("mine", "open", trial.address, options(trial, mine))
            assert arm in ("", found)
            arm = found
            taken = node.ask("mine", "status")["records"]
            if taken < len(records):
                node.start("mine", "record", records[taken : taken + 1])
            else:
                node.start("mine", "report", {"wait": 5})
            if kills < 8:
                time.sleep(rng.uniform(0, 0.03))
                node.kill()
                kills += 1
                continue
            node.answer()
            if taken == len(records):
                break
    answer = trial.end()
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, mine))
        status = node.ask("mine", "report")
    assert (status["state"], status["records"]) == ("counted", 3)
    assert sum(answer["federated"]["reported"].values()) == len(arms) + 1
    values = [(each, float(i)) for i, each in enumerate(arms)] + [(arm, record["y"]) for record in records]
    means = pd.DataFrame(values, columns=["arm", "y"]).groupby("arm")["y"].mean()
    assert trial.effects()[0].estimate == pytest.approx(means["b"] - means["a"], rel=1e-9)


def test_without_a_network_it_takes_records_and_reports_later(
    served_from: Nursery, node_package: Path, tmp_path: Path
) -> None:
    with Served(tmp_path / "server", served_from, unrounded=True) as server, Driven(node_package) as node:
        trial = hosted(server, "offline")
        plan = server.ask("GET", f"{trial.path}/plan", trial.token).text
        arms = company(node, trial, tmp_path)
        server.kill()
        with pytest.raises(Refused, match="cannot be reached") as without_plan:
            node.ask("mine", "open", trial.address, options(trial, tmp_path / "mine", patience=0))
        assert without_plan.value.status is None
        arms.append(node.ask("mine", "open", trial.address, options(trial, tmp_path / "mine", plan=plan, patience=0)))
        assert node.seconds < 1
        node.ask("mine", "record", [{"y": 50.0}])
        assert node.seconds < 1
        with pytest.raises(Refused, match="cannot be reached"):
            node.ask("mine", "report")
        assert node.seconds < 5
        assert node.ask("mine", "status")["state"] in ("new", "pending")
        server.start()
        # What the others have sent and the server had not made durable, it has lost.
        for name in ["mine", *(f"other{i}" for i in range(12))]:
            node.ask(name, "report", {"wait": 0})
        trial.end(deadline=0)
        assert node.ask("mine", "report")["state"] == "counted"
        assert_means(trial, arms, [*map(float, range(12)), 50.0])


def test_records_are_taken_while_a_server_does_not_answer(node_package: Path, server: Served, tmp_path: Path) -> None:
    """One that accepts connections and says nothing."""
    import socket

    trial = hosted(server, "silent")
    plan = server.ask("GET", f"{trial.path}/plan", trial.token).text
    with socket.create_server(("127.0.0.1", 0)) as silent, Driven(node_package) as node:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}{trial.path}"
        node.ask("mine", "open", address, options(trial, tmp_path / "mine", plan=plan, patience=1))
        for _ in range(5):
            node.ask("mine", "record", [{"y": 1.0}])
            assert node.seconds < 0.5
        with pytest.raises(Refused, match="cannot be reached"):
            node.ask("mine", "report")
        assert node.seconds < 10


def test_two_programs_share_a_device(server: Served, node_package: Path, tmp_path: Path) -> None:
    trial, mine = hosted(server, "shared"), tmp_path / "mine"
    with Driven(node_package) as one, Driven(node_package) as other:
        arms = company(one, trial, tmp_path)
        arm = one.ask("mine", "open", trial.address, options(trial, mine))
        assert other.ask("mine", "open", trial.address, options(trial, mine)) == arm
        for node in (one, other):
            node.start("mine", "record", [{"y": float(i)} for i in range(50)])
        for node in (one, other):
            node.answer()
        assert kept(mine)["records"] == 100
        assert kept(mine)["sums"] == [2 * sum(range(50))]
        for node in (one, other):
            node.start("mine", "report")
        assert {node.answer()["state"] for node in (one, other)} <= {"pending", "counted"}
        reported = trial.end()["federated"]["reported"]
        assert [node.ask("mine", "report")["state"] for node in (one, other)] == ["counted", "counted"]
    assert sum(reported.values()) == len(arms) + 1


@pytest.mark.once
def test_a_program_that_is_held_up_at_any_moment_loses_nothing(
    server: Served, node_package: Path, tmp_path: Path
) -> None:
    """Meanwhile another one replaces the file that it has read, and removes it."""
    trial, mine, rng, each = hosted(server, "held-up"), tmp_path / "mine", random.Random(5), 30
    with Driven(node_package) as one, Driven(node_package) as other:
        for node in (one, other):
            node.ask("mine", "open", trial.address, options(trial, mine))
        for turn in range(1, 9):
            one.start("mine", "record", [{"y": 1.0}] * each)
            time.sleep(rng.uniform(0, 0.03))
            os.kill(one.pid, signal.SIGSTOP)
            other.ask("mine", "record", [{"y": 1.0}] * each)
            os.kill(one.pid, signal.SIGCONT)
            one.answer()
            assert kept(mine)["records"] == 2 * each * turn
            assert kept(mine)["sums"] == [2.0 * each * turn]


def test_bad_records_change_nothing_and_are_not_repeated(server: Served, node_package: Path, tmp_path: Path) -> None:
    trial, mine = hosted(server, "faulty"), tmp_path / "mine"
    with Driven(node_package) as node:
        arm = node.ask("mine", "open", trial.address, options(trial, mine))
        for bad in ({"y": "secret"}, {}, {"y": 1.0, "arm": "ab".replace(arm, "")}):
            with pytest.raises(Refused) as refused:
                node.ask("mine", "record", [bad])
            assert refused.value.kind == "RecordError"
            assert "secret" not in str(refused.value)
        assert kept(mine)["records"] == 0
        for address in ("nonsense", trial.server.url, trial.address + "/plan"):
            with pytest.raises(Refused, match="form https://host/v1/trials/NAME"):
                node.ask("other", "open", address, options(trial, mine))
        with pytest.raises(Refused, match="token"):
            node.ask("other", "open", trial.address, {"folder": str(tmp_path / "other"), "token": "a b"})
        with pytest.raises(Refused, match="rejects this token"):
            node.ask("other", "open", trial.address, {"folder": str(tmp_path / "other"), "token": "wrong"})
        plan = server.ask("GET", f"{trial.path}/plan", trial.token).text
        node.ask("other", "open", trial.address, options(trial, tmp_path / "other", plan=plan, token="wrong"))
        node.ask("other", "record", [dict.fromkeys(json.loads(plan)["outcomes"], 1.0)])
        with pytest.raises(Refused, match="rejects this token") as refused:
            node.ask("other", "report")
        assert refused.value.kind == "PlanError"
        assert node.ask("other", "status")["records"] == 1


def test_under_another_plan_nothing_is_sent(server: Served, node_package: Path, tmp_path: Path) -> None:
    trial = hosted(server, "otherwise")
    plan = server.ask("GET", f"{trial.path}/plan", trial.token).json() | {"outcomes": ["y", "z"]}
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, tmp_path / "mine", plan=json.dumps(plan)))
        node.ask("mine", "record", [{"y": 1.0, "z": 2.0}])
        with pytest.raises(Refused, match="another plan") as refused:
            node.ask("mine", "report")
        assert refused.value.status == 409
        true_plan = server.ask("GET", f"{trial.path}/plan", trial.token).text
        with pytest.raises(Refused, match="another plan"):
            node.ask("mine", "open", trial.address, options(trial, tmp_path / "mine", plan=true_plan))
    assert trial.status()["enrolled"] == {"a": 0, "b": 0}


def test_forgetting(server: Served, node_package: Path, tmp_path: Path) -> None:
    trial, mine, leaving = hosted(server, "forgotten"), tmp_path / "mine", tmp_path / "leaving"
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, mine))
        node.ask("mine", "record", [{"y": 7.25}])
        node.ask("mine", "forget")
        assert kept(mine) == {"forgotten": trial.plan.fingerprint}
        with pytest.raises(Refused, match="forgotten"):
            node.ask("mine", "record", [{"y": 1.0}])
        assert node.ask("mine", "open", trial.address, options(trial, mine)) is None
        assert node.ask("mine", "status") == {"trial": "forgotten", "state": "forgotten", "records": 0, "settled": True}
        with pytest.raises(Refused, match="forgotten"):
            node.ask("mine", "arm")
        # One that keeps its report is counted all the same, and then forgets that too.
        node.ask("leaving", "open", trial.address, options(trial, leaving))
        node.ask("leaving", "record", [{"y": 7.25}])
        assert node.ask("leaving", "report")["state"] == "pending"
        node.ask("leaving", "forget", {"keepReport": True})
        assert kept(leaving)["identity"] == ""
        company(node, trial, tmp_path)
        trial.end(deadline=0)
        assert node.ask("leaving", "report")["state"] == "forgotten"
        assert kept(leaving) == {"forgotten": trial.plan.fingerprint}
    assert sum(trial.end()["federated"]["reported"].values()) == 13


@pytest.mark.parametrize("mode", mostly_slow(["sums", "delta", "one-message"], "sums"))
def test_withdrawing(mode: str, server: Served, node_package: Path, tmp_path: Path) -> None:
    trial = hosted(server, f"withdrawn-{mode}", mode)
    with Driven(node_package) as node:
        for name in ("early", "pending", "mine", "leaving", "lost", "late"):
            node.ask(name, "open", trial.address, options(trial, tmp_path / name))
            node.ask(name, "record", [{"y": 1000.0}])
        assert node.ask("early", "withdraw")["state"] == "withdrawn"
        with pytest.raises(Refused, match="this device is withdrawn"):
            node.ask("early", "record", [{"y": 1.0}])
        assert node.ask("pending", "report")["state"] == "pending"
        assert node.ask("pending", "withdraw")["state"] == "withdrawn"
        for name in ("mine", "leaving", "lost", "late"):
            node.ask(name, "report", {"keepReport": name != "lost"})
        arms = company(node, trial, tmp_path / "company")
        for name in ("mine", "leaving", "lost", "late"):
            assert node.ask(name, "report")["state"] == "counted"
        assert json.loads(kept(tmp_path / "mine")["report"])["n"] == 1
        assert kept(tmp_path / "lost")["report"] == ""
        with pytest.raises(Refused, match="did not keep it"):
            node.ask("lost", "withdraw")
        for name in ("mine", "leaving"):
            assert node.ask(name, "withdraw")["state"] == "withdrawing"
        node.ask("leaving", "forget", {"keepReport": True})
        assert kept(tmp_path / "leaving")["identity"] == ""
        assert node.ask("leaving", "withdraw")["state"] == "withdrawing"
    with Driven(node_package) as node:  # another day
        node.ask("mine", "open", trial.address, options(trial, tmp_path / "mine"))
        node.ask("leaving", "open", trial.address, options(trial, tmp_path / "leaving"))
        more = company(node, trial, tmp_path / "more")
        for _ in range(2):
            assert node.ask("mine", "report")["state"] == "withdrawn"
            assert node.ask("leaving", "report")["state"] == "forgotten"
        assert kept(tmp_path / "mine")["report"] == ""
        answer = trial.end()
        node.ask("late", "open", trial.address, options(trial, tmp_path / "late"))
        assert node.ask("late", "withdraw")["state"] == "withdrawn too late"
    reported = answer["federated"]["reported"]
    assert sum(reported.values()) == len(arms) + len(more) + 2  # lost and late
    assert sum(answer["federated"]["withdrawn"].values()) == 2


def test_by_invitation(server: Served, node_package: Path, tmp_path: Path) -> None:
    plan = fa.Plan(
        name="by-invitation",
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        federated=fa.Federated("sums", invited=True),
        privacy=fa.Privacy(cohort=1, smallest_cell=1),
    )
    trial = Hosted(server, plan)
    one, other = server.ask("POST", f"{trial.path}/invitations", json={"count": 2}).json()["invitations"]
    with Driven(node_package) as node:
        with pytest.raises(Refused, match="by invitation alone"):
            node.ask("mine", "open", trial.address, options(trial, tmp_path / "mine"))
        for name in ("mine", "other"):
            node.ask(name, "open", trial.address, options(trial, tmp_path / name, invitation=one))
            node.ask(name, "record", [{"y": 1.0}])
            if name == "mine":
                assert node.ask(name, "report")["state"] == "counted"
                assert "invitation" not in kept(tmp_path / name) or not kept(tmp_path / name)["invitation"]
        with pytest.raises(Refused, match="another device has used it") as refused:
            node.ask("other", "report")
        assert refused.value.status == 403
        node.ask("other", "open", trial.address, options(trial, tmp_path / "other", invitation=other))
        assert node.ask("other", "report")["state"] == "counted"
    assert sum(trial.status()["enrolled"].values()) == 2


def test_too_late_it_has_missed_the_trial(server: Served, node_package: Path, tmp_path: Path) -> None:
    trial, mine = hosted(server, "late"), tmp_path / "mine"
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, mine))
        company(node, trial, tmp_path)
        trial.end(deadline=0)
        node.ask("mine", "record", [{"y": 1.0}])
        status = node.ask("mine", "report")
        assert (status["state"], status["settled"]) == ("missed", True)
        assert kept(mine)["sums"] == []


def test_records_are_not_kept_for_longer_than_the_plan_allows(
    server: Served, node_package: Path, tmp_path: Path
) -> None:
    trial, mine = hosted(server, "expired"), tmp_path / "mine"
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, mine))
        node.ask("mine", "record", [{"y": 1.0}])
        assert kept(mine)["until"] == pytest.approx(time.time() + trial.plan.privacy.retention, abs=60)
        (file,) = mine.glob("expired.*")
        whole = json.loads(file.read_text())
        whole["kept"]["until"] = time.time() - 1
        file.write_text(json.dumps(whole))
        # Whichever trial's device runs next.
        other = hosted(server, "another")
        node.ask("other", "open", other.address, options(other, mine))
        (file,) = mine.glob("expired.*")
        assert json.loads(file.read_text())["kept"]["sums"] == []
        assert node.ask("mine", "status")["state"] == "expired"
        with pytest.raises(Refused, match="expired"):
            node.ask("mine", "record", [{"y": 1.0}])


def test_a_folder_that_others_see_or_a_damaged_file(server: Served, node_package: Path, tmp_path: Path) -> None:
    trial, mine, public = hosted(server, "damaged"), tmp_path / "mine", tmp_path / "public"
    public.mkdir(mode=0o755)
    with Driven(node_package) as node:
        with pytest.raises(Refused, match="chmod 700"):
            node.ask("mine", "open", trial.address, options(trial, public))
        node.ask("mine", "open", trial.address, options(trial, mine))
        node.ask("mine", "record", [{"y": 1.0}])
        (file,) = mine.glob("*.foldaway-kept")
        assert file.stat().st_mode & 0o077 == 0
        file.write_text(file.read_text()[:40])
        with pytest.raises(Refused, match="cannot be read"):
            node.ask("mine", "record", [{"y": 1.0}])
        node.ask("mine", "forget")
        assert set(kept(mine)) == {"forgotten"}


def test_what_a_killed_process_left_goes(server: Served, node_package: Path, tmp_path: Path) -> None:
    """A draft that was linked, and one that was not: the first is the file of the device, and stays as it is."""
    trial, mine = hosted(server, "drafts"), tmp_path / "mine"
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, mine))
        node.ask("mine", "record", [{"y": 1.0}])
    (file,) = mine.glob("drafts.*")
    linked, lone = mine / f".{'0' * 16}.foldaway-kept", mine / f".{'1' * 16}.foldaway-kept"
    os.link(file, linked)
    lone.write_text("{}")
    long_ago = time.time() - 100
    for draft in (linked, lone):
        os.utime(draft, (long_ago, long_ago))
    with Driven(node_package) as node:
        node.ask("mine", "open", trial.address, options(trial, mine))
        assert node.ask("mine", "status")["records"] == 1
    assert list(mine.glob(".*")) == []
    assert np.isfinite(kept(mine)["sums"][0])
