"""A stream's saved file: whole or not at all, for one consumer alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import foldaway as fa
from foldaway.errors import SourceError, StateError
from foldaway.keeping.folded_files import FoldedFiles
from foldaway.keeping.saved import StreamPositions, load
from foldaway.keeping.user_keys import FileKey
from foldaway.sources.brokers.stream_file import STATE, StreamFile, StreamState, read
from plans import SMALL

KEY = FileKey("5a" * 16, bytes(16))
STORED = StreamState(StreamPositions("nats ORDERS", "made", {"": (17,), "3": (5, 2)}, skipped=1, missed=2), b"tallies")


def test_what_is_written_comes_back_bit_for_bit(tmp_path: Path) -> None:
    trial = fa.Trial(fa.Plan(**SMALL))
    trial.fold({"group": ["a", "b"] * 5, "y": range(10)})
    stored = StreamState(StreamPositions("redis orders", places={"": (1, 2)}), trial.dumps())
    with StreamFile(tmp_path / "a" / "b") as store:
        assert read(store.folder, KEY.key) is None
        for each in (STORED, stored):
            store.write(each, KEY)
            assert read(store.folder, KEY.key) == each
    found = read(tmp_path / "a" / "b", KEY.key)
    assert found is not None
    assert found.of(trial.plan).dumps() == trial.dumps()
    with pytest.raises(StateError, match="another plan"):
        found.of(fa.Plan(**SMALL, privacy={"cohort": 7}))


def test_only_its_owner_can_look_inside(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with StreamFile(tmp_path / "store") as store:
            store.write(STORED, KEY)
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "store").iterdir()}
    finally:
        os.umask(before)
    assert modes == {"state": 0o600, "state.lock": 0o600}
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("at", [0, 9, 30, 60, -1])
def test_every_damaged_byte_is_noticed(tmp_path: Path, at: int) -> None:
    with StreamFile(tmp_path) as store:
        store.write(STORED, KEY)
        data = bytearray((tmp_path / STATE).read_bytes())
        data[at] ^= 1
        (tmp_path / STATE).write_bytes(data)
        with pytest.raises(StateError, match=str(tmp_path)):
            read(store.folder, KEY.key)


def test_another_kind_of_state_is_no_store(tmp_path: Path) -> None:
    trial = fa.Trial(fa.Plan(**SMALL))
    trial.save(tmp_path / STATE)
    with pytest.raises(StateError, match=r"saved by `Trial\.save`, not by the consumer of a stream"):
        read(tmp_path)
    trial.save(tmp_path / STATE, positions=FoldedFiles().positions)
    with pytest.raises(StateError, match="saved by a run over files, not by the consumer of a stream"):
        read(tmp_path)


def test_its_trial_is_loaded_like_any_other(tmp_path: Path) -> None:
    trial = fa.Trial(fa.Plan(**SMALL))
    trial.fold({"group": ["a", "b"] * 5, "y": range(10)})
    with StreamFile(tmp_path) as file:
        file.write(StreamState(STORED.reached, trial.dumps()), trial.secret.for_files())
    assert fa.Trial.load(tmp_path / STATE).dumps() == trial.dumps()
    assert load(tmp_path / STATE).positions == STORED.reached


def test_whoever_reads_meanwhile_sees_the_old_state_or_the_new(tmp_path: Path) -> None:
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            found = read(tmp_path, KEY.key)
            if found is not None:
                seen.add(found.reached.skipped)

    watcher = threading.Thread(target=watch)
    watcher.start()
    written = 0
    with StreamFile(tmp_path) as store:
        while written < 100 or (len(seen) < 2 and written < 10_000):
            store.write(StreamState(StreamPositions("s", skipped=written), bytes(10_000)), KEY)
            written += 1
    done.set()
    watcher.join(10)
    assert seen <= set(range(written))
    assert len(seen) > 1


@pytest.mark.once
def test_a_store_is_free_once_its_process_is_gone_however_it_went(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from foldaway.keeping.folded_files import FoldedFiles
from foldaway.keeping.saved import Saved, StreamPositions, load
from foldaway.sources.brokers.stream_file import StreamFile
store = StreamFile(Path({str(tmp_path)!r}))
print("has it", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "has it\n"
    with pytest.raises(SourceError, match="another program"):
        StreamFile(tmp_path)
    process.kill()
    process.communicate()
    with StreamFile(tmp_path):
        pass


@pytest.mark.once
def test_a_draft_that_a_kill_has_left_is_gone_once_the_store_is_opened(tmp_path: Path) -> None:
    with StreamFile(tmp_path) as store:
        store.write(STORED, KEY)
    (tmp_path / "state.draft").write_bytes(b"a state less than a cohort apart")
    with StreamFile(tmp_path) as store:
        assert {path.name for path in tmp_path.iterdir()} == {"state", "state.lock"}
        assert read(store.folder, KEY.key) == STORED
        (tmp_path / "state.draft").write_bytes(b"being written")
        with pytest.raises(SourceError, match="another program"):
            StreamFile(tmp_path)
        assert (tmp_path / "state.draft").exists()  # whoever has the store is writing it


def test_a_state_that_cannot_be_written_is_told_and_the_old_one_stays(tmp_path: Path) -> None:
    with StreamFile(tmp_path) as store:
        store.write(STORED, KEY)
        (tmp_path / "state.draft").mkdir()
        with pytest.raises(StateError, match="Nothing was acknowledged"):
            store.write(StreamState(StreamPositions("other")), KEY)
        assert read(store.folder, KEY.key) == STORED
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot be used"):
        StreamFile(tmp_path / "file")
