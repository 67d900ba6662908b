"""What a device keeps on its disk: for its owner alone, in one step or not at all, and gone when it is deleted."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import foldaway as fa
from foldaway.errors import StateError
from foldaway.federated.device import local_store
from foldaway.federated.device.custody import DeviceStore
from foldaway.federated.device.local_store import LocalStore, sweep
from foldaway.federated.device.state import DeviceState, Forgotten, MemoryStore

PLAN = fa.Plan(
    name="local.trial",
    arm="group",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    federated="scores",
    privacy=fa.Privacy(retention=1000.0),
)
FILE, MARK = "local.trial.foldaway-device", "local.trial.foldaway-forgotten"
CANARY = b"a value that nobody else has"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "device"


def begun(folder: Path) -> LocalStore:
    store = LocalStore(folder, PLAN.name)
    store.begin(DeviceState.new(PLAN))
    return store


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, folder: Path) -> DeviceStore:
    return begun(folder) if request.param == "file" else MemoryStore(DeviceState.new(PLAN))


# Laws of every store.


def test_a_change_is_seen_by_the_next_one(store: DeviceStore) -> None:
    with store.changing() as kept:
        kept.records, kept.stage, kept.sums = 3, "reporting", b"sums"
        store.add_row(b"row")
    with store.changing() as kept:
        assert (kept.records, kept.stage, kept.sums) == (3, "reporting", b"sums")
        assert store.unsent() == [b"row"]


def test_a_change_that_fails_has_never_been(store: DeviceStore) -> None:
    with store.changing():
        store.add_row(b"first")
        store.send_later(b"number", b"message")
    with suppress(ZeroDivisionError), store.changing() as kept:
        kept.records = 9
        store.add_row(b"second")
        store.settle(b"number", durable=False)
        raise ZeroDivisionError
    with store.changing() as kept:
        assert kept.records == 0
        assert store.waiting() == [(b"number", b"message")]
        assert store.unsent() == []


def test_a_message_covers_the_rows_before_it(store: DeviceStore) -> None:
    with store.changing():
        store.add_row(b"1")
        store.add_row(b"2")
        store.send_later(b"n1", b"m1")
        store.add_row(b"3")
        assert store.unsent() == [b"3"]
        assert store.covered() == []
        store.send_later(b"n2", b"m2")
        store.add_row(b"4")
        assert store.waiting() == [(b"n1", b"m1"), (b"n2", b"m2")]
        store.settle(b"n1", durable=True)
        assert store.covered() == [b"1", b"2"]
        store.settle(b"n2", durable=False)
        assert store.covered() == [b"1", b"2"]
        assert store.waiting() == []
        assert store.unsent() == [b"4"]
        store.drop_records()
        assert store.covered() == store.unsent() == []


def test_what_was_erased_is_forgotten(store: DeviceStore) -> None:
    store.erase(PLAN.fingerprint)
    with pytest.raises(Forgotten), store.changing():
        pass
    store.erase(PLAN.fingerprint)


# The file.


def test_the_folder_and_the_file_are_for_their_owner_alone(folder: Path) -> None:
    old = os.umask(0)
    try:
        store = begun(folder)
        with store.changing():
            store.add_row(CANARY)
            journal = folder / f"{FILE}-journal"
            assert journal.exists()
            modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}
    store.erase(PLAN.fingerprint)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_folder_that_others_may_look_into_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(StateError, match="chmod 700"):
        LocalStore(folder, PLAN.name)


def test_a_state_is_begun_once_and_comes_back(folder: Path) -> None:
    with begun(folder).changing() as kept:
        identity = kept.identity
    with begun(folder).changing() as kept:
        assert kept.identity == identity
    assert LocalStore(folder, PLAN.name).plan() == PLAN


def test_a_file_that_is_no_database_is_told_and_left_alone(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    file = folder / FILE
    file.write_bytes(b"something else" * 100)
    with pytest.raises(StateError, match="cannot be used"):
        LocalStore(folder, PLAN.name).plan()
    assert file.read_bytes() == b"something else" * 100


@pytest.mark.once
def test_an_empty_file_is_what_a_kill_leaves_at_the_very_beginning(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / FILE).touch(0o600)
    store = LocalStore(folder, PLAN.name)
    assert store.plan() is None
    store.begin(DeviceState.new(PLAN))
    assert store.plan() == PLAN


def test_two_processes_of_one_device_wait_for_each_other(folder: Path) -> None:
    begun(folder)
    adding = (
        "import sys; from pathlib import Path; from foldaway.federated.device.local_store import LocalStore\n"
        f"store = LocalStore(Path(sys.argv[1]), {PLAN.name!r})\n"
        "for _ in range(100):\n"
        "    with store.changing() as kept:\n"
        "        kept.records += 1\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", adding, str(folder)]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    with begun(folder).changing() as kept:
        assert kept.records == 200


# Forgetting.


def test_nothing_is_left_of_what_was_forgotten_but_a_mark(folder: Path) -> None:
    store = begun(folder)
    with store.changing() as kept:
        kept.sums = CANARY * 3
        identity = kept.identity
        for _ in range(500):
            store.add_row(CANARY)
    assert files(folder).count(CANARY) >= 500
    store.erase(PLAN.fingerprint)
    assert [path.name for path in folder.iterdir()] == [MARK]
    assert files(folder) == PLAN.fingerprint.encode()
    assert identity not in files(folder)
    assert LocalStore(folder, PLAN.name).forgotten == PLAN.fingerprint


def test_deleted_rows_are_overwritten_where_they_were(folder: Path) -> None:
    store = begun(folder)
    with store.changing() as kept:
        kept.sums = CANARY * 300
        for _ in range(500):
            store.add_row(CANARY)
    assert CANARY in files(folder)
    with store.changing() as kept:
        kept.sums = b""
        store.drop_records()
    assert CANARY not in files(folder)


@pytest.mark.once
@pytest.mark.parametrize("moment", ["_remove", "replace_file"])
def test_forgetting_that_was_cut_short_is_ended_by_the_next_who_opens(folder: Path, moment: str) -> None:
    store = begun(folder)
    with store.changing():
        store.add_row(CANARY)
    killed = (
        "import os, sys; from pathlib import Path; from foldaway.federated.device import local_store\n"
        f"original = local_store.{moment}\n"
        "def killed(*arguments, **options):\n"
        f"    if {moment!r} == 'replace_file': original(*arguments, **options)\n"
        "    os.kill(os.getpid(), 9)\n"
        f"store = local_store.LocalStore(Path(sys.argv[1]), {PLAN.name!r})\n"
        f"local_store.{moment} = killed\n"
        f"store.erase({PLAN.fingerprint!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(folder)])
    assert done.returncode == -signal.SIGKILL
    assert (folder / FILE).exists()
    if moment == "replace_file":
        assert CANARY in files(folder)  # so that there is something to end
    LocalStore(folder, "another")
    assert [path.name for path in folder.iterdir()] == [MARK]


@pytest.mark.once
def test_a_journal_that_a_kill_has_left_is_deleted_with_the_rest(folder: Path) -> None:
    store = begun(folder)
    with store.changing():
        for _ in range(300):
            store.add_row(CANARY)
    killed = (
        "import os, sys; from pathlib import Path; from foldaway.federated.device.local_store import LocalStore\n"
        f"store = LocalStore(Path(sys.argv[1]), {PLAN.name!r})\n"
        "with store.changing():\n"
        "    store._run('PRAGMA cache_size = 1')\n"
        "    store.drop_records()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", killed, str(folder)]).returncode == -signal.SIGKILL
    journal = folder / f"{FILE}-journal"
    assert CANARY in journal.read_bytes()  # the pages as they were, to roll back with
    LocalStore(folder, PLAN.name).erase(PLAN.fingerprint)
    assert files(folder) == PLAN.fingerprint.encode()


@pytest.mark.parametrize("harm", [b"something else", b"SQLite format 3\0 and then nothing that fits"])
def test_a_damaged_file_can_be_forgotten(folder: Path, harm: bytes) -> None:
    with begun(folder).changing() as kept:
        kept.sums = CANARY * 3
    file = folder / FILE
    with file.open("r+b") as damaged:
        damaged.write(harm)
    assert CANARY in files(folder)
    LocalStore(folder, PLAN.name).erase(PLAN.fingerprint)
    assert files(folder) == PLAN.fingerprint.encode()


def test_a_damaged_file_that_nobody_asks_for_is_deleted_when_it_is_old(folder: Path) -> None:
    begun(folder)
    file = folder / FILE
    file.write_bytes(CANARY * 100)
    sweep(folder, time.time() + 29 * 86_400)
    assert CANARY in files(folder)
    sweep(folder, time.time() + 31 * 86_400)
    assert [path.name for path in folder.iterdir()] == [MARK]
    assert files(folder) == b""
    store = LocalStore(folder, PLAN.name)
    assert (store.plan(), store.forgotten) == (None, "")


# Retention.


@pytest.mark.parametrize("sent", ["nothing", "a message", "a report"])
def test_records_are_deleted_when_they_have_been_kept_long_enough_by_whoever_opens_the_folder(
    sent: str, folder: Path
) -> None:
    store, now = begun(folder), time.time()
    with store.changing() as kept:
        kept.sums, kept.since = CANARY * 3, now
        store.add_row(CANARY)
        if sent == "a message":
            store.send_later(b"number", CANARY)
        elif sent == "a report":
            kept.report, kept.stage = CANARY, "reporting"
    sweep(folder, now + PLAN.privacy.retention - 1)
    assert CANARY in files(folder)
    sweep(folder, now + PLAN.privacy.retention + 1)
    assert CANARY not in files(folder)
    with store.changing() as kept:
        assert (kept.stage, kept.since) == ("expired" if sent == "nothing" else "expired while pending", None)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_that_another_process_deletes_at_this_moment_is_no_trouble(
    damaged: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(folder)
    if damaged:
        (folder / FILE).write_bytes(b"something else" * 100)
    connect = local_store._connect

    def deleted_first(file: Path) -> sqlite3.Connection:
        file.unlink()
        return connect(file)

    monkeypatch.setattr(local_store, "_connect", deleted_first)
    sweep(folder)
    assert not (folder / FILE).exists()


def test_another_trial_in_the_folder_is_swept_when_a_device_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(folder)
    with store.changing() as kept:
        kept.since = time.time()
        store.add_row(CANARY)
    later = time.time() + PLAN.privacy.retention + 1
    monkeypatch.setattr(time, "time", lambda: later)
    LocalStore(folder, "another")
    assert CANARY not in files(folder)


def test_sqlite_is_told_to_leave_nothing_behind(folder: Path) -> None:
    store = begun(folder)
    with store.changing():
        settings = {name: store._run(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "secure_delete")}
    assert settings == {"journal_mode": "truncate", "secure_delete": 1}
    with sqlite3.connect(folder / FILE) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() != ("wal",)
