"""Where states were saved under a key: a list of paths for each key, so that a trial's end can name the other states.

The list lies with what outlives this user's programs, under the key's mark. It holds no key, and nothing of a record.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from foldaway.errors import UNREADABLE
from foldaway.keeping.disk import make_folder
from foldaway.keeping.user_keys import state_home


def note_place(mark: str, path: Path) -> None:
    """Note that a state was saved here under the key of this mark; the state is as safe where that cannot be noted."""
    with suppress(OSError, RuntimeError):
        places, line = _list_of(mark), msgspec.json.encode(str(path.resolve())) + b"\n"
        if places.exists() and line in places.read_bytes().splitlines(keepends=True):
            return
        make_folder(places.parent)
        handle = os.open(places, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line)  # in one piece, as several programs may do so
        finally:
            os.close(handle)


def places_of(mark: str) -> list[Path]:
    """Where states were saved under the key of this mark, as far as that was noted; some may be gone."""
    places: list[Path] = []
    with suppress(OSError, RuntimeError):
        for line in _list_of(mark).read_bytes().splitlines():
            with suppress(*UNREADABLE):
                places.append(Path(msgspec.json.decode(line, type=str)))
    return places


def forget_places(mark: str) -> None:
    """Remove the list of a key that was destroyed."""
    with suppress(OSError, RuntimeError):
        _list_of(mark).unlink(missing_ok=True)


def _list_of(mark: str) -> Path:
    return state_home() / "states" / mark
