"""Golden files: JSON with a field in every line, in which a reading that repeats another names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from goldens.cases import EXACT, LEAN, LEAN_ROUNDED, ROUNDED

FOLDER = Path(__file__).parent
EFFECTS = FOLDER / "effects"
OPENAPI = FOLDER / "openapi.json"
HELP = FOLDER / "help.txt"
STATEMENTS = FOLDER / "sql"

# Most trials say the same once they were saved.
_REPEATS = {LEAN: EXACT, LEAN_ROUNDED: ROUNDED}


def effects_file(name: str) -> Path:
    """Where the effects of a case lie."""
    return EFFECTS / f"{name}.json"


def written(document: Any) -> str:
    """A document as its file has it."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def with_repeats(readings: dict[str, Any]) -> dict[str, Any]:
    """Readings as their file has them."""
    repeated = {way: first for way, first in _REPEATS.items() if way in readings and readings[way] == readings[first]}
    return readings | {way: f"as {first}" for way, first in repeated.items()}


def effects_in(name: str) -> dict[str, Any]:
    """The readings of a case's file."""
    readings = json.loads(effects_file(name).read_text("utf-8"))
    return {way: readings[_REPEATS[way]] if isinstance(reading, str) else reading for way, reading in readings.items()}
