"""Files: all of the old, or all of the new; or nothing, however a crash comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from foldaway.keeping.disk import destroy_file, make_file, read_file, remove_traces, replace_file

pytestmark = pytest.mark.once


def test_a_file_is_replaced_in_one_step_and_others_may_be_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old", private=True)
    replace_file(path, b"new", private=True)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_crash_before_the_end_leaves_the_old_file(tmp_path: Path, call: str) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old")
    program = (
        "import os, sys; from pathlib import Path; from foldaway.keeping.disk import replace_file\n"
        f"os.{call} = lambda *_, **__: os._exit(7)\n"
        "Path.replace = lambda self, target: os.replace(self, target)\n"
        "replace_file(Path(sys.argv[1]), b'new')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], env=dict(os.environ), timeout=60)
    assert done.returncode == 7
    assert path.read_bytes() == b"old"
    assert {each.name for each in tmp_path.iterdir()} == {"state", "state.draft"}
    remove_traces(path)
    remove_traces(path)  # again: nothing happens
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old")

    def fails(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(call, fails)
        with pytest.raises(type(error)):
            replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_made_replaces_nothing_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_file(path, b"first")
    with pytest.raises(FileExistsError):
        make_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_destroyed_was_overwritten_first(tmp_path: Path) -> None:
    path, twin = tmp_path / "secret", tmp_path / "twin"
    path.write_bytes(b"secret")
    os.link(path, twin)  # another name for the same bytes on the disk
    destroy_file(path)
    assert not path.exists()
    assert twin.read_bytes() == bytes(6)
    destroy_file(path)  # again: nothing happens


def test_a_private_files_former_bytes_are_overwritten_under_every_name(tmp_path: Path) -> None:
    path, other = tmp_path / "state", tmp_path / "other"
    replace_file(path, b"old and longer", private=True)
    other.hardlink_to(path)
    with path.open("rb") as blocks:
        replace_file(path, b"new", private=True)
        assert blocks.read() == bytes(14)
    assert (path.read_bytes(), other.read_bytes()) == (b"new", bytes(14))
    assert {each.name for each in tmp_path.iterdir()} == {"state", "other"}


@pytest.mark.parametrize("step", ["rename", "folder", "overwritten"])
@pytest.mark.parametrize("then", [remove_traces, lambda path: replace_file(path, b"third", private=True)])
def test_what_a_kill_leaves_of_the_former_file_goes_next_time(
    tmp_path: Path, step: str, then: Callable[[Path], None]
) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old", private=True)
    program = (
        "import os, signal, sys; from pathlib import Path; from foldaway.keeping import disk\n"
        "def kill(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "original = disk.destroy_file\n"
        "def destroy(path):\n"
        "    if path.exists(): kill()\n"
        f"if {step!r} == 'rename': Path.replace = kill\n"
        f"if {step!r} == 'folder': disk.sync_folder = kill\n"
        f"if {step!r} == 'overwritten': disk.destroy_file = destroy\n"
        "disk.replace_file(Path(sys.argv[1]), b'new', private=True)\n"
    )
    with path.open("rb") as blocks:
        done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60)
        assert done.returncode == -signal.SIGKILL
        assert path.read_bytes() == (b"old" if step == "rename" else b"new")
        then(path)
        if path.read_bytes() != b"old":
            assert blocks.read() == bytes(3)
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_gets_one_version_though_the_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"0" * 10_000, private=True)
    over = threading.Event()

    def write() -> None:
        for turn in range(300):
            replace_file(path, str(turn % 10).encode() * 10_000, private=True)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not over.is_set():
        found = read_file(path)
        assert len(found) == 10_000
        assert len(set(found)) == 1
        assert found[:1] != b"\0"
    writer.join()
