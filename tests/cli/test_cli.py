"""How the command line ends: with a sentence and an exit code, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import foldaway as fa
from commands import foldaway
from foldaway.simulation.demo import PLAN

SECRET = "SECRET-31415"


def test_an_unexpected_error_shows_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from foldaway import cli

    def fail(*_: object, **__: object) -> None:
        raise ValueError(SECRET)

    PLAN.save(tmp_path / "plan.toml")
    monkeypatch.setattr(sys, "argv", ["foldaway", "plan", "check", str(tmp_path / "plan.toml")])
    monkeypatch.setattr(fa.Plan, "load", fail)
    monkeypatch.delenv("FOLDAWAY_DEBUG", raising=False)
    assert cli.exit_code() == 70
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert "ValueError" in shown.err


@pytest.mark.parametrize("words", [["--help"], ["demo", "--records", "2000"]], ids=["help", "demo"])
def test_output_that_finds_no_room_is_an_error_and_no_bug(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "foldaway", *words], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.count(b"error: the output could not be written: No space left on device.") == 1


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_was_closed_is_no_failure(closed: str) -> None:
    words = f"exec {sys.executable} -m foldaway --version {'>&-' if closed == 'stdout' else '2>&-'}"
    done = subprocess.run(["sh", "-c", words], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_names_every_command() -> None:
    done = foldaway("--help")
    for command in ("run", "merge", "plan", "demo"):
        assert command in done.stdout
