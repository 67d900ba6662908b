from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldaway.forgetting import harden
from foldaway.forgetting.harden import environment, forget_now, settle

# Prints what a process is like after `harden`, and how often it came by here.
SCRIPT = """
import ctypes, json, os, resource, sys
print("came by", flush=True)
from foldaway.forgetting.harden import ENVIRONMENT, environment, harden
said = harden()
print(json.dumps({
    "said": said,
    "pid": os.getpid(),
    "arguments": sys.argv[1:],
    "options": sys.flags.dev_mode,
    "hardened": environment(os.environ) == dict(os.environ),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "locked": next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmLck")),
    "again": harden() == said,
}))
"""


def run(folder: Path, script: str, *arguments: str, **environ: str) -> tuple[int, list[str]]:
    path = folder / "script.py"
    path.write_text(script)
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", str(path), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return process.pid, lines


def test_the_process_starts_again_once(tmp_path: Path) -> None:
    pid, (*came_by, last) = run(tmp_path, SCRIPT, "--port", "0", "an argument")
    found: dict[str, Any] = json.loads(last)
    assert came_by == ["came by", "came by"]
    assert found["pid"] == pid
    assert found["arguments"] == ["--port", "0", "an argument"]
    assert found["options"] is True
    assert found["hardened"]
    assert found["again"]


def test_memory_does_not_reach_a_disk(tmp_path: Path) -> None:
    _, lines = run(tmp_path, SCRIPT)
    found = json.loads(lines[-1])
    assert found["core"] == [0, 0]
    assert found["dumpable"] == 0
    assert bool(found["locked"]) != any("swap" in sentence for sentence in found["said"])


def test_a_process_that_is_hardened_already_goes_on(tmp_path: Path) -> None:
    _, lines = run(tmp_path, SCRIPT, **environment({}))
    assert lines[:-1] == ["came by"]
    assert json.loads(lines[-1])["hardened"]


def test_settings_that_do_not_stick_are_told_and_not_tried_for_ever(tmp_path: Path) -> None:
    stubborn = SCRIPT.replace("said = harden()", "os.environ['PYTHONMALLOC'] = 'pymalloc'; said = harden()")
    _, lines = run(tmp_path, stubborn)
    assert lines[:-1] == ["came by", "came by"]
    assert any("not overwritten" in sentence for sentence in json.loads(lines[-1])["said"])


def test_the_environment_keeps_what_others_have_set() -> None:
    given = {"A": "b", "MALLOC_PERTURB_": "0", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=7:glibc.malloc.check=1"}
    found = environment(given)
    assert found["A"] == "b"
    assert found["MALLOC_PERTURB_"] != "0"
    assert found["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.tcache_count=0"
    assert environment(found) == found


def test_what_cannot_be_done_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not overwritten" in harden._overwritten()
    monkeypatch.setattr(harden, "_may_lock", lambda: False)
    assert "swap" in harden._locked()
    monkeypatch.setattr(sys, "platform", "other")
    assert "swap" in harden._locked()


def test_small_arrays_that_numpy_keeps_are_overwritten() -> None:
    arrays = [np.full(77, 7.25) for _ in range(7)]
    del arrays
    assert (np.empty(77) == 7.25).any()
    forget_now()
    held = [np.empty(77) for _ in range(7)]
    assert not any((array == 7.25).any() for array in held)


def test_circles_of_errors_are_broken() -> None:
    class Held:
        gone = False

        def __del__(self) -> None:
            Held.gone = True

    def fail() -> None:
        held = Held()
        error = ValueError(held)  # its frame knows it and it knows its frame
        raise error

    with pytest.raises(ValueError, match="Held"):
        fail()
    forget_now()
    assert Held.gone


def test_settling_takes_what_lives_long_out_of_the_search() -> None:
    try:
        settle()
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
