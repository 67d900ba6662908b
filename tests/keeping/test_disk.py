"""Files: all of the old, or all of the new; or nothing, however a crash comes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldaway.keeping.disk import destroy_file, make_file, remove_draft, replace_file


def test_a_file_is_replaced_in_one_step_and_others_may_be_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"old", mode=0o600)
    replace_file(path, b"new", mode=0o600)
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
    remove_draft(path)
    remove_draft(path)  # again: nothing happens
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
