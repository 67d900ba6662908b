"""What the guide to reports shows runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foldaway.report.page.document import MARK

GUIDE = (Path(__file__).parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_the_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL)
    assert len(snippets) == 2
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, "reports.md", "exec"), names)
    for name in ("report.html", "effects.html"):
        assert MARK in (tmp_path / name).read_text(encoding="utf-8")
    assert (tmp_path / "effects.pdf").read_bytes().startswith(b"%PDF")
