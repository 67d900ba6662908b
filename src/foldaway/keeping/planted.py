"""Whether a secret in a file is one's own: whoever could have put it there knows what is encrypted under it.

And whether a folder is: whoever may look into it sees what is kept there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from foldaway.errors import FoldawayError, StateError, instead_of


def require_own(path: Path, error: type[FoldawayError]) -> None:
    """Refuse a file that another user could have written or replaced, where a file system tells.

    A folder that is sticky, as /tmp is, lets nobody replace the files of others; what is mounted read-only was chosen
    by whoever runs the machine, as secrets of containers are.

    Args:
        path: The file, which need not be there yet.
        error: What to raise.
    """
    if os.name != "posix":
        return
    file = path.resolve()
    for place in dict.fromkeys([path.absolute().parent, file.parent, file]):
        what = "the file" if place == file else "the folder"
        try:
            about, read_only = place.stat(), os.statvfs(place).f_flag & os.ST_RDONLY
        except OSError:  # nothing to read there, which is for whoever reads it to say
            continue
        if read_only:
            continue
        if about.st_uid not in (0, os.geteuid()):
            raise error(
                f"{what} {place} belongs to another user, who may have put the secret in {path.name} there: run this "
                "as that user, or use a file of your own, in a folder of your own."
            )
        sticky = place != file and about.st_mode & stat.S_ISVTX
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            raise error(
                f"others can write to {what} {place}, so the secret in {path.name} may be theirs. If you made it "
                f"yourself, say chmod go-w {place}; if not, make a new one elsewhere."
            )


def require_private(folder: Path) -> None:
    """Make a folder for its owner alone, or refuse one that others may look into, where a folder's mode tells.

    Raises:
        StateError: It is not private, or cannot be used.
    """
    with instead_of(OSError, lambda error: StateError(f"the folder {folder} cannot be used: {error.strerror}.")):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    if os.name == "posix" and about.st_mode & 0o077:
        raise StateError(f"others may look into {folder}: say chmod 700 {folder}, or choose another folder.")
    if os.name == "posix" and about.st_uid != os.geteuid():
        raise StateError(f"{folder} belongs to another user: run this as that user, or choose a folder of your own.")
