"""Before anything is folded: may the state be saved where it is to go?"""

from __future__ import annotations

import os
from pathlib import Path

from foldaway.errors import StateError
from foldaway.saved import MAGIC as SAVED
from foldaway.state import MAGIC as STATE


def require_savable(target: Path | None, resumed: Path | None, overwrite: bool) -> None:
    """Refuse a place that cannot be written, or that holds something else: records cannot be had again.

    Args:
        target: Where the state is to go, if anywhere.
        resumed: The state that the run goes on from, which it may replace.
        overwrite: Whether it may replace another state. It may never replace anything that is no state.
    """
    if target is None:
        return
    if not target.parent.is_dir():
        raise StateError(f"the state cannot be saved as {target}: there is no folder {target.parent}.")
    if not os.access(target.parent, os.W_OK):
        raise StateError(f"the state cannot be saved as {target}: the folder may not be written to.")
    if not target.exists():
        return
    if not target.is_file() or not _is_state(target):
        raise StateError(f"{target} exists and is no foldaway state; save to another name.")
    if not overwrite and (resumed is None or not resumed.exists() or not target.samefile(resumed)):
        raise StateError(f"{target} holds a state: go on from it with --resume, or say --overwrite to replace it.")


def _is_state(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(STATE)) in (STATE, SAVED)
