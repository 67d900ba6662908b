"""Which files to read: patterns in, a list of files out."""

import glob
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from foldaway.errors import SourceError, instead_of
from foldaway.keeping.disk import trouble


@dataclass(frozen=True)
class Stdin:
    """Standard input, where a path could stand."""

    def __str__(self) -> str:
        return "standard input"


def expand(patterns: Sequence[str]) -> list[Path | Stdin]:
    """The files that the patterns name, sorted, each once; standard input, written ``-``, comes last.

    A name that exists is taken as it is, so a file called ``a[1].csv`` can be named. Two names of one file count
    once: its records must not be folded twice.

    Args:
        patterns: File names, globs (``**`` reaches into folders), or ``-``.

    Raises:
        SourceError: A pattern matches no file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b.csv", "a.csv"):
        ...         _ = Path(folder, name).write_text("x")
        ...     [getattr(path, "name", "-") for path in expand([f"{folder}/*.csv", f"{folder}/a.csv", "-"])]
        ['a.csv', 'b.csv', '-']
    """
    files: dict[Path, Path] = {}
    for path in chain.from_iterable(_matches(pattern) for pattern in patterns if pattern != "-"):
        files.setdefault(path.resolve(), path)
    return [*sorted(files.values()), *([Stdin()] if "-" in patterns else [])]


def _matches(pattern: str) -> list[Path]:
    name = os.path.expanduser(pattern)
    if os.path.isdir(name):
        raise SourceError(f"{pattern} is a folder; name the files in it, such as {Path(pattern, '*.csv')}")
    matches = [name] if os.path.lexists(name) else glob.glob(name, recursive=True)
    files = [Path(match) for match in matches if not os.path.isdir(match)]
    if not files:
        raise SourceError(f"{pattern} matches no file; check the spelling and the folder you are in")
    return files


def size(path: Path | Stdin) -> int | None:
    """The file's size in bytes, or None for what has none: standard input and pipes.

    Raises:
        SourceError: The file is not there.

    Example:
        >>> size(Stdin()) is None
        True
    """
    if isinstance(path, Stdin):
        return None
    with instead_of(OSError, lambda error: SourceError(f"{path} {trouble(error)}")):
        status = os.stat(path)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
