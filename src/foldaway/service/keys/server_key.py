"""The key pair of a server that takes part in mode shares, in a file of its owner's, beside the other keys."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from foldaway.errors import VaultError, instead_of
from foldaway.federated.summands.sealing import KeyPair
from foldaway.keeping.disk import make_file, make_folder
from foldaway.keeping.planted import require_own

FILE = "server.key"


def make_server_key(folder: Path) -> KeyPair:
    """The key pair of a data folder, made if there is none: what devices have sealed for it opens with no other."""
    path = folder / FILE
    with instead_of(OSError, lambda error: VaultError(f"the key file {path} cannot be made: {error.strerror}.")):
        make_folder(folder)
        require_own(path, VaultError)
        with suppress(FileExistsError):
            make_file(path, KeyPair.new().dumps())
    return read_server_key(folder)


def read_server_key(folder: Path) -> KeyPair:
    """The key pair of a data folder.

    Raises:
        VaultError: There is none, or somebody else may have put it there.
    """
    path = folder / FILE
    require_own(path, VaultError)
    missing = VaultError(f"there is no key pair in {path}: make one with `foldaway key new-server --data {folder}`.")
    broken = VaultError(f"the key pair in {path} cannot be read: bring the file back from a backup.")
    with instead_of(FileNotFoundError, missing), instead_of((OSError, ValueError), broken):
        return KeyPair.loads(path.read_bytes())
