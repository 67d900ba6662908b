"""``foldaway key``: the keys of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from foldaway.cli.terminal.connecting import extra
from foldaway.cli.terminal.server_settings import Config, Data, Database, KeyFile, PasswordFile, VersionKeys, opened
from foldaway.errors import ServerError

app = typer.Typer()


@app.command()
def key(
    action: Annotated[
        Literal["new", "rotate"],
        typer.Argument(
            metavar="ACTION",
            help="new creates a key in FILE; rotate encrypts everything that a server has stored under a new key.",
        ),
    ],
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="For new: where to write the key; - prints it, for FOLDAWAY_KEY."),
    ] = None,
    data: Data = None,
    database: Database = None,
    key_file: KeyFile = None,
    database_password_file: PasswordFile = None,
    version_keys: VersionKeys = None,
    config: Config = None,
) -> None:
    """Create or replace the key that encrypts a server's trials.

    Keep the key apart from the data, and do not lose it. The options are for rotate, which needs the server's
    database and the key that it has now.
    """
    if (file is None) != (action == "rotate"):
        raise ServerError("say where to write the new key: foldaway key new FILE. To replace it: foldaway key rotate.")
    if file is not None:
        _create(file)
        return
    store = opened(data, database, key_file, database_password_file, version_keys, new=False)
    from foldaway.service.database.store import rotate_key

    rotate_key(store)
    print("Everything stored is now encrypted under a new key; the old one is gone.")


def _create(file: str) -> None:
    """Write a new key to a file, or print it."""
    with extra():
        from foldaway.service.keys.master_key import make_key_file, new_key

    if file == "-":
        print(new_key())
        return
    make_key_file(Path(file), known=False)
    print(f"A new key is in {file}; only its owner can read it.")
