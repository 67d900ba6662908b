"""The mark of a folder whose trials move to a database: it is there before they are, and nobody serves the folder."""

from __future__ import annotations

from pathlib import Path

from foldaway.errors import StoreError, instead_of
from foldaway.keeping.disk import replace_file, sync_folder

_FILE = "moved"
_HALF, _WHOLE = "moving to", "moved to"


def require_unmoved(folder: Path) -> None:
    """Refuse a folder whose trials are elsewhere, or on their way.

    Raises:
        StoreError: They are.
    """
    found = read_mark(folder)
    if found is not None:
        place, whole = found
        raise StoreError(
            f"the trials of {folder} were moved to {place}: use that database (--database)."
            if whole
            else f"a move of the trials of {folder} to {place} broke off: repeat it, with the same --to."
        )


def read_mark(folder: Path) -> tuple[str, bool] | None:
    """Where the trials are, and whether all of them; None if they are still here."""
    with instead_of(OSError, lambda error: StoreError(f"{folder / _FILE} cannot be read: {error.strerror}.")):
        if not (folder / _FILE).exists():
            return None
        words = (folder / _FILE).read_text(encoding="utf-8").strip()
    for how in (_HALF, _WHOLE):
        if words.startswith(how):
            return words.removeprefix(how).strip(), how == _WHOLE
    raise StoreError(f"{folder / _FILE} is not a mark of foldaway: move it away if you know where it comes from.")


def write_mark(folder: Path, place: str, *, whole: bool) -> None:
    """Say where the trials are going, or have gone."""
    with instead_of(OSError, lambda error: StoreError(f"{folder / _FILE} cannot be written: {error.strerror}.")):
        replace_file(folder / _FILE, f"{_WHOLE if whole else _HALF} {place}\n".encode())


def remove_mark(folder: Path) -> None:
    """The trials have stayed."""
    (folder / _FILE).unlink(missing_ok=True)
    sync_folder(folder)
