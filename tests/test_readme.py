"""The README's snippets run as written, and what it shows is what comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snippets import Reader, snippets

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    """The README's fenced blocks in a language, in order."""
    return [snippet.text for snippet in snippets(README) if snippet.language == language and not snippet.hidden]


def test_the_snippets_run_and_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    with Reader("README.md", tmp_path, dict(os.environ)) as reader:
        for snippet in snippets(README):
            reader.run(snippet)
    printed = capsys.readouterr().out
    shown = next(block for block in fenced("text") if block.startswith("Ship it:"))
    head = shown.split("…")[0].rstrip()
    assert len(head.splitlines()) > 6
    assert printed.startswith(head)


def test_the_demo_ends_as_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foldaway", "demo"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=120,
    )
    shown = next(block for block in fenced("text") if "all rows kept" in block)

    def without_rounding(text: str) -> str:
        return re.sub(r"\de[-+]\d\d", "rounding", text)  # equal to the last bit is 0e+00

    assert without_rounding(done.stdout.decode()).endswith(without_rounding(shown))


def test_every_command_shown_exists() -> None:
    done = subprocess.run([sys.executable, "-m", "foldaway", "--help"], capture_output=True, check=True, timeout=60)
    commands = {word for block in fenced("sh") for word in re.findall(r"^foldaway (\w+)", block, flags=re.MULTILINE)}
    assert commands >= {"plan", "run", "report"}
    assert all(command in done.stdout.decode() for command in commands)
