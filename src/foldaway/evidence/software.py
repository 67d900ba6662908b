"""Which foldaway is at work: its version, and a hash of its files."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from foldaway.evidence.signing import canonical, digest

_PACKAGE = Path(__file__).parents[1]


@cache
def software() -> dict[str, str]:
    """The version, and SHA-256 of the canonical list of all files of the package that are code, with their hashes.

    Example:
        >>> sorted(software())
        ['package', 'version']
    """
    files = sorted(path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".js", ".css", ".html"))
    hashes = {path.relative_to(_PACKAGE).as_posix(): digest(path.read_bytes()) for path in files}
    try:
        number = version("foldaway")
    except PackageNotFoundError:  # a source tree that is not installed
        number = "unknown"
    return {"version": number, "package": digest(canonical(hashes))}
