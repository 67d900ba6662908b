"""The map in CONTRIBUTING.md is the house as it stands: it cannot lie."""

from __future__ import annotations

import re
from pathlib import Path

from test_rooms import ROOMS, SOURCE

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
# What a map need not explain.
UNLISTED = {"__main__"}


def section(title: str) -> str:
    return GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_map_lists_every_room_in_the_order_of_the_imports() -> None:
    rows = [line.split("|")[1] for line in section("The map").splitlines() if line.startswith("| `")]
    rooms = [room for row in rows for room in re.findall(r"`([^`]+)`", row)]
    assert rooms == [room for room in ROOMS if room not in UNLISTED]


def test_tests_mirror_the_rooms() -> None:
    tests = Path(__file__).parent
    places = (SOURCE, tests.parent)  # clients lie beside the house
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    own = {Path(), Path("deploy"), Path("goldens"), Path("studies")}
    assert [
        str(folder) for folder in sorted(folders - own) if not any((place / folder).is_dir() for place in places)
    ] == []


def test_files_that_the_guide_names_exist() -> None:
    root = Path(__file__).parents[1]
    named = set(re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:py|md|toml|yaml|txt|in))`", GUIDE))
    there = [(root / name).exists() or (SOURCE / name).exists() for name in sorted(named)]
    missing = [name for name, exists in zip(sorted(named), there, strict=True) if not exists]
    assert missing == []
