"""The server's master keys as text: 64 hexadecimal digits a line, the first to seal with, all of them to open with."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from foldaway.errors import VaultError, instead_of
from foldaway.keeping.disk import make_file, make_folder, replace_file
from foldaway.keeping.planted import require_own

LENGTH = 32
VARIABLE = "FOLDAWAY_KEY"
FILE = "master.key"


def parse_keys(text: str, source: str) -> list[bytes]:
    """The keys in a text, apart by blanks, commas or line ends; the source is for the error's sentence."""
    lines = text.replace(",", " ").split()
    # The text may be a key with a typing error in it: no message repeats it.
    if not lines or not all(len(line) == 2 * LENGTH and set(line.lower()) <= set("0123456789abcdef") for line in lines):
        raise VaultError(f"{source} must hold keys of {2 * LENGTH} hexadecimal digits each, and nothing else.")
    return list(dict.fromkeys(bytes.fromhex(line) for line in lines))


def read_keys(path: Path) -> list[bytes]:
    """The keys in a file, which nobody else may have put there."""
    require_own(path, VaultError)
    with instead_of(OSError, lambda error: VaultError(f"the key file {path} cannot be read: {error.strerror}.")):
        text = path.read_text(encoding="ascii", errors="replace")  # what is no text is no key either
    return parse_keys(text, f"the key file {path}")


def new_key() -> str:
    """A key as text."""
    return secrets.token_hex(LENGTH)


def make_key_file(path: Path, *, known: bool = True) -> None:
    """Write a file with one new key, for its owner alone. A file that is already there stays.

    Raises:
        VaultError: It cannot be written; or it is there, and that is not wanted (`known`).
    """
    with instead_of(OSError, lambda error: VaultError(f"the key file {path} cannot be made: {error.strerror}.")):
        make_folder(path.parent)
        require_own(path, VaultError)
        with suppress(*([FileExistsError] if known else [])):  # of a server that started at the same moment
            make_file(path, f"{new_key()}\n".encode())


def write_keys(path: Path, keys: Iterable[bytes]) -> None:
    """Replace a key file in one step: a crash leaves the old keys or the new ones."""
    with instead_of(OSError, lambda error: VaultError(f"the key file {path} cannot be written: {error.strerror}.")):
        replace_file(path, "".join(f"{key.hex()}\n" for key in keys).encode(), private=True)


def add_key(path: Path) -> None:
    """Put a new key first in a file; those it holds stay behind it, to open what they sealed."""
    write_keys(path, [secrets.token_bytes(LENGTH), *read_keys(path)])


def drop_old_keys(path: Path) -> None:
    """Keep only the first key of a file."""
    write_keys(path, read_keys(path)[:1])
