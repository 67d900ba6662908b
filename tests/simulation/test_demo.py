"""The demo compares what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from foldaway.report.page.document import MARK
from measured import measured


def test_the_demo_agrees_with_kept_rows_and_leaves_no_key(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foldaway", "demo", "--records", "20000", "--seed", "3", "--report", "page.html"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, **measured(), "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    exact = re.findall(r"all rows kept .* (\d)e-(\d\d)$", done.stdout, re.MULTILINE)
    assert len(exact) == 4
    assert max(float(f"{digit}e-{power}") for digit, power in exact) < 1e-12
    clustered = re.findall(r" ([+-]\d+) %$", done.stdout, re.MULTILINE)
    assert len(clustered) == 4
    assert max(abs(int(percent)) for percent in clustered) < 5 * 6  # five standard deviations of the jackknife's error
    assert "Records still held by foldaway: none." in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr.startswith("Report written to page.html")
    assert MARK in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
