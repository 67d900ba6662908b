"""A stream's saved file: whole or not at all, for one program alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import foldaway as fa
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.errors import SourceError, StateError
from foldaway.keeping.folded_files import FoldedFiles
from foldaway.keeping.saved import StreamPositions, load
from plans import SMALL

KEY = bytes(16)
PLAN = fa.Plan(**SMALL)
STREAM = "nats ORDERS"
REACHED = StreamPositions(STREAM, "made", {"": (17,), "3": (5, 2)}, skipped=1, missed=2)


def opened(folder: Path, plan: fa.Plan = PLAN, stream: str = STREAM) -> StreamFile:
    return StreamFile(folder, plan, stream, key=KEY)


def folded(n: int = 10) -> fa.Trial:
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold({"group": ["a", "b"] * (n // 2), "y": range(n)})
    return trial


def write(store: StreamFile, trial: fa.Trial, reached: StreamPositions = REACHED) -> None:
    store.write(store.read(), trial, reached)


def test_what_is_written_comes_back_bit_for_bit(tmp_path: Path) -> None:
    trial, place = folded(), tmp_path / "a" / "b"
    with opened(place) as store:
        assert store.read().reached == StreamPositions(STREAM)
        write(store, trial)
        assert store.read().reached == REACHED
        assert store.read().tallies.dumps() == trial.dumps()
    for other, why in ((fa.Plan(**SMALL, privacy={"cohort": 7}), "another plan"),):
        with opened(place, other) as store, pytest.raises(StateError, match=why):
            store.read()
    with opened(place, stream="redis orders") as store, pytest.raises(SourceError, match=r"another stream \(nats ORD"):
        store.read()
    assert fa.Trial.load(place / STATE, key=KEY).dumps() == trial.dumps()
    assert load(place / STATE, KEY).positions == REACHED


def test_only_its_owner_can_look_inside(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(tmp_path / "store") as store:
            write(store, folded())
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "store").iterdir()}
    finally:
        os.umask(before)
    assert modes == {"state": 0o600, "state.lock": 0o600}
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("at", [9, 30, 60, -1])
def test_every_damaged_byte_is_noticed(tmp_path: Path, at: int) -> None:
    with opened(tmp_path) as store:
        write(store, folded())
        data = bytearray((tmp_path / STATE).read_bytes())
        data[at] ^= 1
        (tmp_path / STATE).write_bytes(data)
        with pytest.raises(StateError, match=str(tmp_path)):
            store.read()


def test_the_list_of_a_run_over_files_is_no_place_in_a_stream(tmp_path: Path) -> None:
    folded().save(tmp_path / STATE, positions=FoldedFiles().positions)
    with opened(tmp_path) as store, pytest.raises(StateError, match="saved by a run over files, not by the consumer"):
        store.read()


def test_whoever_reads_meanwhile_sees_the_old_state_or_the_new(tmp_path: Path) -> None:
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if (tmp_path / STATE).exists():
                positions = load(tmp_path / STATE, KEY).positions
                assert isinstance(positions, StreamPositions)
                seen.add(positions.skipped)

    watcher = threading.Thread(target=watch)
    watcher.start()
    written, trial = 0, folded()
    with opened(tmp_path) as store:
        durable = store.read()
        while written < 100 or (len(seen) < 2 and written < 10_000):
            durable = store.write(durable, trial, StreamPositions(STREAM, skipped=written))
            written += 1
    done.set()
    watcher.join(10)
    assert seen <= set(range(written))
    assert len(seen) > 1


@pytest.mark.once
def test_a_store_is_free_once_its_process_is_gone_however_it_went(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.toml")
    program = f"""
import sys
from pathlib import Path
import foldaway as fa
from foldaway.account.stream_file import StreamFile
place = Path({str(tmp_path)!r})
store = StreamFile(place, fa.Plan.load(place / "plan.toml"), "nats ORDERS")
print("has it", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "has it\n"
    with pytest.raises(StateError, match="another program"):
        opened(tmp_path)
    process.kill()
    process.communicate()
    with opened(tmp_path):
        pass


@pytest.mark.once
def test_a_draft_that_a_kill_has_left_is_gone_once_the_store_is_opened(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, folded())
    (tmp_path / "state.draft").write_bytes(b"a state less than a cohort apart")
    with opened(tmp_path) as store:
        assert {path.name for path in tmp_path.iterdir()} == {"state", "state.lock"}
        assert store.read().reached == REACHED
        (tmp_path / "state.draft").write_bytes(b"being written")
        with pytest.raises(StateError, match="another program"):
            opened(tmp_path)
        assert (tmp_path / "state.draft").exists()  # whoever has the store is writing it


def test_a_state_that_cannot_be_written_is_told_and_the_old_one_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, folded())
        (tmp_path / "state.draft").mkdir()
        with pytest.raises(StateError, match="Nothing is lost"):
            write(store, folded(20))
        assert store.read().tallies.n == 10
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot be used"):
        opened(tmp_path / "file")
