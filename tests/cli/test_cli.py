"""How the command line ends: with a sentence and an exit code, whatever happens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import foldaway as fa
from commands import foldaway
from foldaway import cli
from foldaway.simulation.demo import PLAN

SECRET = "SECRET-31415"


def test_an_unexpected_error_shows_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
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
def test_output_that_finds_no_room_is_an_error_and_no_bug(words: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "foldaway", *words]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count(b"error: the output could not be written: No space left on device.") == 1


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_was_closed_is_no_failure(closed: str) -> None:
    words = f"exec {sys.executable} -m foldaway --version {'>&-' if closed == 'stdout' else '2>&-'}"
    done = subprocess.run(["sh", "-c", words], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def every_command(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from every_command(each, (*words, name))


def test_help_is_plain_whole_and_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    command = get_command(cli.app)
    monkeypatch.setattr("typer.testing._get_command", lambda app: command)  # not made anew for each
    every = list(every_command(command))
    assert len(every) > 24
    for words in every:
        shown = CliRunner().invoke(cli.app, [*words, "--help"], terminal_width=80).output
        assert shown.startswith("Usage:"), words
        assert max(map(len, shown.splitlines())) <= 80, words
        assert not re.search(r"<\w+|[^\]}]\.\.\.$|[╭│]", shown, re.MULTILINE), words


def test_help_and_completion_load_next_to_nothing() -> None:
    for words in (["--help"], ["run", "--help"]):
        program = f"import sys; sys.argv = ['foldaway', *{words}]; from foldaway.cli import exit_code; exit_code()"
        program += "; assert not {'numpy', 'pyarrow', 'rich', 'scipy'} & set(sys.modules)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    asked = {"_FOLDAWAY_COMPLETE": "complete_bash", "COMP_WORDS": "foldaway token is", "COMP_CWORD": "2"}
    assert foldaway(env=asked).stdout.split() == ["issue"]
