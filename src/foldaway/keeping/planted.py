"""Whether a secret in a file is one's own: whoever could have put it there knows what is encrypted under it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from foldaway.errors import FoldawayError


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
