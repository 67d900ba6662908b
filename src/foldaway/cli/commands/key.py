"""``foldaway key``: the keys of a server."""

from __future__ import annotations

import os
import shlex
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Literal

import typer

from foldaway.cli.terminal.connecting import extra
from foldaway.cli.terminal.server_settings import Config, Data, Database, KeyFile, PasswordFile, VersionKeys, opened
from foldaway.cli.terminal.words import in_lines
from foldaway.errors import ServerError, many

app = typer.Typer()


@app.command()
def key(
    action: Annotated[
        Literal["new", "rotate", "new-server"],
        typer.Argument(
            metavar="ACTION",
            help="new creates a key in FILE; rotate encrypts everything that a server has stored under a new key; "
            'new-server creates the key pair that a server of --data needs for trials of mode "shares", and prints its '
            "public half for the plan.",
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
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="For rotate: keep the key, and move the trials of --data to this empty PostgreSQL database, "
            "postgresql://…, encrypted anew. Stop the server first.",
        ),
    ] = None,
    config: Config = None,
) -> None:
    """Create or replace the keys of a server.

    One key encrypts its trials. A leader or helper of trials in mode "shares" has a pair of keys as well.
    Keep the key apart from the data, and do not lose it. The options are for rotate, which needs the server's
    database and the key that it has now.
    """
    if to is not None and action != "rotate":
        raise ServerError("--to goes with rotate: foldaway key rotate --data FOLDER --to postgresql://….")
    if action == "new-server":
        _create_pair(data, file)
        return
    if (file is None) != (action == "rotate"):
        raise ServerError("say where to write the new key: foldaway key new FILE. To replace it: foldaway key rotate.")
    if file is not None:
        _create(file)
        return
    if to is not None:
        _move(to, data, database, key_file, database_password_file, version_keys)
        return
    store = opened(data, database, key_file, database_password_file, version_keys, new=False)
    from foldaway.service.database.store import rotate_key

    rotate_key(store)
    print("Everything stored is now encrypted under a new key; the old one is gone.")


def _move(
    to: str,
    data: Path | None,
    database: str | None,
    key_file: Path | None,
    password_file: Path | None,
    version_keys: Path | None,
) -> None:
    """Move the trials of a folder to a database, and say how they are served from there."""
    with extra():
        from foldaway.service.database.databases import without_password
        from foldaway.service.moving import move
        from foldaway.service.server import Settings

    moved = move(
        Settings(data, database, key_file=key_file, password_file=password_file, version_keys=version_keys), to
    )
    how_much = (
        "They had been moved before"
        if moved.trials is None or moved.tokens is None
        else f"{many(moved.trials, 'trial')} and {many(moved.tokens, 'token')} were moved"
    )
    print(in_lines(f"{how_much} to {moved.place}. {data} is not served any more; its databases are destroyed."))
    print("Serve them from there, with the same key:\n")
    key = None if "FOLDAWAY_KEY" in os.environ and key_file is None else key_file or f"{data}/master.key"
    own = {"key-file": key, "version-keys": version_keys, "database-password-file": password_file}
    words = ["foldaway", "serve", "--database", without_password(to)]
    words += [word for name, file in own.items() if file is not None for word in (f"--{name}", str(file))]
    print(f"  {shlex.join(words)}")


def _create_pair(data: Path | None, file: str | None) -> None:
    """Make a server's key pair, and print its public half."""
    if data is None or file is not None:
        raise ServerError("say which server the keys are for: foldaway key new-server --data FOLDER.")
    with extra():
        from foldaway.service.keys.server_key import make_server_key

    print(b64encode(make_server_key(data).public).decode())


def _create(file: str) -> None:
    """Write a new key to a file, or print it."""
    with extra():
        from foldaway.service.keys.master_key import make_key_file, new_key

    if file == "-":
        print(new_key())
        return
    make_key_file(Path(file), known=False)
    print(f"A new key is in {file}; only its owner can read it.")
