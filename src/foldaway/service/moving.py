"""Moving the trials of a folder to a PostgreSQL database, for good: nothing is lost or there twice, whatever crashes.

The folder is marked before anything is copied, and nobody serves it from then on. All is copied in one transaction,
read again and compared; only then the folder's databases are destroyed. Until that is so, the same command goes on.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from foldaway.errors import FoldawayError, StoreError, VaultError, instead_of
from foldaway.keeping.disk import destroy_file
from foldaway.service.database.databases import place_of
from foldaway.service.database.moved import read_mark, remove_mark, write_mark
from foldaway.service.database.store import Store
from foldaway.service.server import Settings, alone, open_vault, password_of


class Moved(NamedTuple):
    """What was moved: how much, and where to; no numbers if an earlier call had moved it."""

    place: str
    trials: int | None = None
    tokens: int | None = None


def move(settings: Settings, to: str) -> Moved:
    """Move all that is in a folder to an empty database.

    Args:
        settings: The folder, its master key; the database's password, and the file of version keys that it is to have.
        to: The database's address.

    Raises:
        FoldawayError: The folder is in use, or was moved elsewhere; the database is not empty or does not answer. All
            is as it was, or the sentence says that the same command is to be repeated.
    """
    folder, place = settings.data, place_of(to)
    if folder is None or settings.database is not None:
        raise FoldawayError("--to moves the trials of a folder: name it with --data, and the database with --to alone.")
    if not folder.is_dir():
        raise FoldawayError(f"there are no trials in {folder}.")
    versions = folder / "version.keys"
    if settings.version_keys is not None and settings.version_keys.resolve() == versions.resolve():
        raise FoldawayError(f"{versions} is the folder's: the database needs a file of version keys of its own.")
    with alone(settings):
        mark = read_mark(folder)
        if mark is not None and mark[0] != place:
            raise StoreError(f"the trials of {folder} were moved to {mark[0]}, or are on their way there.")
        if mark is not None and mark[1]:
            _destroy(folder)
            return Moved(place)
        if not (folder / "foldaway.db").is_file():
            raise FoldawayError(f"there are no trials in {folder}.")
        vault = open_vault(settings)
        there = versions.exists()
        with instead_of(VaultError, lambda error: None if there else _elsewhere(versions)):
            source = Store.open(folder, vault, version_keys=versions, leaving=True)
        with instead_of(VaultError, lambda error: StoreError(f"{place} is not empty: {error} Or name an empty one.")):
            target = Store.open(to, vault, password_of(settings), settings.version_keys)
        try:
            return _move(folder, place, source, target)
        finally:
            source.close()
            target.close()


def _elsewhere(versions: Path) -> FoldawayError:
    """The refusal of a folder whose version keys are missing; a new file of them, in their place, goes."""
    versions.unlink(missing_ok=True)
    return FoldawayError(
        f"there is no {versions}. If the folder's server had its version keys in another file (--version-keys), move "
        "that file there, and repeat the command: here, --version-keys names the file that the database is to have."
    )


def _move(folder: Path, place: str, source: Store, target: Store) -> Moved:
    if not target.is_copy_of(source):
        target.require_empty()
        write_mark(folder, place, whole=False)
        try:
            target.take_over(source)
        except BaseException:
            # If the database says that nothing has arrived, the folder is as before; if it does not answer, the
            # mark stays, and the next call finds out.
            with suppress(FoldawayError):
                if not target.is_copy_of(source):
                    remove_mark(folder)
            raise
    if not target.has_all_of(source):
        raise StoreError(
            f"what is in {place} differs from what is in {folder}. If servers use that database already, all was "
            f"moved: remove foldaway.db, keys.db and version.keys from {folder} by hand. If not, empty the database, "
            "and repeat the command."
        )
    moved = Moved(place, len(source.trials()), len(source.tokens.all()))
    write_mark(folder, place, whole=True)
    source.close()
    _destroy(folder)
    return moved


def _destroy(folder: Path) -> None:
    """Overwrite and remove what the folder still has; the version keys first, without which the rest is noise."""
    left = f"the trials were moved, but what is left in {folder} cannot be removed: {{}}. Remove its databases by hand."
    with instead_of(OSError, lambda error: StoreError(left.format(error.strerror))):
        for name in ("version.keys", "keys.db", "foldaway.db", "keys.db-journal", "foldaway.db-journal"):
            destroy_file(folder / name)
