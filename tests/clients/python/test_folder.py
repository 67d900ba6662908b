"""What a device keeps on its disk: for its owner alone, in one step or not at all, and gone when it is deleted."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import foldaway as fa
from devices import device_in
from foldaway_device.custody import Custody, Forgotten
from foldaway_device.errors import StateError
from foldaway_device.folder import FolderStore
from foldaway_device.plan import read_plan
from foldaway_device.state import MemoryStore, State, Store

PLAN = fa.Plan(
    name="local.trial",
    arm="group",
    arms={"a": 0.5, "b": 0.5},
    outcomes=["y"],
    federated="scores",
    privacy=fa.Privacy(retention=1000.0),
)
FILE = "local.trial.foldaway-device"
CANARY = "a value that nobody else has"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "device"


def begun(folder: Path) -> FolderStore:
    store = FolderStore(folder)
    device_in(PLAN, None, store=store)
    return store


def custody(store: Store) -> Custody:
    return Custody(PLAN.name, store)


def keep(store: Store, **values: object) -> None:
    with custody(store).changing() as state:
        for name, value in values.items():
            setattr(state, name, value)


def kept(store: Store) -> State:
    with store.changing(PLAN.name) as held:
        assert held.state is not None
        return held.state


def assert_only_a_mark(store: Store, fingerprint: str = PLAN.fingerprint) -> None:
    assert vars(kept(store)) == vars(State(fingerprint, stage="forgotten"))


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def is_there(folder: Path) -> bool:
    return CANARY.encode() in files(folder)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, folder: Path) -> Store:
    if request.param == "file":
        return begun(folder)
    memory = MemoryStore()
    device_in(PLAN, None, store=memory)
    return memory


# Laws of every store.


def test_a_change_is_seen_by_the_next_one_and_one_that_fails_has_never_been(store: Store) -> None:
    keep(store, records=3, stage="reporting", sums=[1.5, 0.1 + 0.2], report=CANARY)
    with suppress(ZeroDivisionError), custody(store).changing() as state:
        state.records = 9
        raise ZeroDivisionError
    found = kept(store)
    assert (found.records, found.stage, found.sums, found.report) == (3, "reporting", [1.5, 0.1 + 0.2], CANARY)
    assert list(store.trials()) == [PLAN.name]


def test_changes_by_several_threads_come_one_after_the_other(store: Store) -> None:
    """Such as that of a record, and of the answer to an enrolment beside it: neither undoes the other."""

    def count(_: int) -> None:
        with store.changing(PLAN.name) as held:
            assert held.state is not None
            before = held.state.records
            time.sleep(0.001)
            held.state.records = before + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(24)))
    assert kept(store).records == 24


def test_what_was_forgotten_is_a_mark(store: Store) -> None:
    for _ in range(2):
        custody(store).forget(keep_report=False)
        assert_only_a_mark(store)
    with pytest.raises(Forgotten), custody(store).changing():
        pass


# The file.


def test_the_folder_and_the_file_are_for_their_owner_alone(folder: Path) -> None:
    old = os.umask(0)
    try:
        store = begun(folder)
        with custody(store).changing() as state:
            state.report = CANARY
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert modes[FILE] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_folder_that_others_may_look_into_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(StateError, match="chmod 700"):
        FolderStore(folder)


@pytest.mark.once
def test_an_empty_file_is_what_a_kill_leaves_at_the_very_beginning(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / FILE).touch(0o600)
    with FolderStore(folder).changing(PLAN.name) as held:
        assert held.state is None
        held.state = State.new(read_plan(PLAN.canonical()))
    assert kept(FolderStore(folder)).fingerprint == PLAN.fingerprint


def test_two_processes_of_one_device_wait_for_each_other(folder: Path) -> None:
    store = begun(folder)
    adding = (
        "import sys; from foldaway_device.custody import Custody; from foldaway_device.folder import FolderStore\n"
        f"custody = Custody({PLAN.name!r}, FolderStore(sys.argv[1]))\n"
        "for _ in range(50):\n"
        "    with custody.changing() as state:\n"
        "        state.records += 1\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", adding, str(folder)]) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert kept(store).records == 100


def test_sqlite_is_told_to_leave_nothing_behind(folder: Path) -> None:
    store = begun(folder)
    keep(store, report=CANARY * 3000, sums=[1.5] * 3000)  # on pages of their own
    assert is_there(folder)
    keep(store, report="", sums=[])
    assert not is_there(folder)
    with sqlite3.connect(folder / FILE) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() != ("wal",)


# Forgetting.


def test_nothing_is_left_of_what_was_forgotten(folder: Path) -> None:
    store = begun(folder)
    keep(store, report=CANARY * 3000)
    identity, number = kept(store).identity.encode(), kept(store).number.encode()
    assert is_there(folder)
    assert identity in files(folder)
    custody(store).forget(keep_report=False)
    assert not is_there(folder)
    assert identity not in files(folder)
    assert number not in files(folder)
    assert_only_a_mark(FolderStore(folder))


@pytest.mark.once
def test_forgetting_that_is_cut_short_has_not_been_or_leaves_a_journal_that_goes_with_the_next_look(
    folder: Path,
) -> None:
    store = begun(folder)
    keep(store, report=CANARY * 3000)
    killed = (
        "import os, sys; from foldaway_device.folder import FolderStore; from foldaway_device import folder\n"
        "folder._PRAGMAS += ('cache_size = 1',)\n"  # so that pages are written before the end
        f"with FolderStore(sys.argv[1]).changing({PLAN.name!r}) as held:\n"
        "    held.state.forget()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(folder)])
    assert done.returncode == -signal.SIGKILL
    assert is_there(folder)
    custody(FolderStore(folder)).forget(keep_report=False)
    assert not is_there(folder)
    assert [path.name for path in folder.iterdir() if path.stat().st_size] == [FILE]


@pytest.mark.parametrize("harm", [b"something else", b"SQLite format 3\0 and then nothing that fits"])
def test_a_damaged_file_is_told_left_alone_and_can_be_forgotten(harm: bytes, folder: Path) -> None:
    store = begun(folder)
    keep(store, report=CANARY * 3000)
    with (folder / FILE).open("r+b") as damaged:
        damaged.write(harm)
    before = files(folder)
    with pytest.raises(StateError, match=r"damaged; then the device's forget\(\) deletes it"):
        kept(FolderStore(folder))
    assert files(folder) == before
    custody(store).forget(keep_report=True)
    assert not is_there(folder)
    assert_only_a_mark(store, "")


def test_a_damaged_file_that_nobody_asks_for_is_deleted_when_it_is_old(folder: Path) -> None:
    begun(folder)
    file = folder / FILE
    for days, stays in ((29, True), (31, False)):
        file.write_bytes(CANARY.encode() * 100)
        os.utime(file, (time.time() - days * 86_400,) * 2)
        store = FolderStore(folder)
        assert is_there(folder) is stays
    assert_only_a_mark(store, "")


# Retention.


@pytest.mark.parametrize("sent", ["nothing", "moments", "report"])
def test_what_was_kept_long_enough_is_deleted_by_whoever_opens_the_folder(sent: str, folder: Path) -> None:
    store = begun(folder)
    keep(store, sums=[float(i) for i in range(2000)], until=time.time() + 1000)
    if sent != "nothing":
        keep(store, **{sent: CANARY})
    before = files(folder)
    FolderStore(folder)
    assert files(folder) == before
    keep(store, until=time.time() - 1)
    FolderStore(folder)
    assert not is_there(folder)
    found = kept(store)
    assert (found.stage, found.until) == ("expired" if sent == "nothing" else "expired while pending", 0.0)
    assert (found.sums, found.moments, found.report) == ([], "", "")
