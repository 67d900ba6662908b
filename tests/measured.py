"""Coverage of commands that tests run as processes."""

from __future__ import annotations

from pathlib import Path

import coverage

ROOT = Path(__file__).parents[1]


def measured() -> dict[str, str]:
    """What a process needs in its environment to be measured, if this one is."""
    if coverage.Coverage.current() is None:
        return {}
    return {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(ROOT / ".coverage")}
