"""``foldaway serve`` and ``foldaway rotate``: a server, and the key of what it stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldaway.cli.terminal.connecting import extra

app = typer.Typer()

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--database-password-file",
        help="A file with the database's password; FOLDAWAY_DATABASE_PASSWORD by default.",
    ),
]


@app.command()
def serve(
    data: Annotated[Path | None, typer.Option(help="A folder for the trials, stored in SQLite there.")] = None,
    database: Annotated[
        str | None, typer.Option(help="A PostgreSQL database, for several servers: postgresql://…")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 for any that is free.")] = 8321,
    shard: Annotated[
        str | None, typer.Option(help="This server's name among those on one database; the host's by default.")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="The key that encrypts what is stored; FOLDAWAY_KEY, or DATA/master.key, by default."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="A certificate for https.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="The largest batch that the server accepts, in MiB.")] = 32,
    queue: Annotated[
        int, typer.Option(min=1, help="Batches in hand at once; a token's share is half of what others leave.")
    ] = 64,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds in which a batch must arrive.")] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what fails, not every request.")] = False,
    password_file: PasswordFile = None,
) -> None:
    """Collect records over HTTP and keep none of them."""
    with extra():
        from foldaway.service.server import Settings, serve

    https = certificate, certificate_key
    place = data, database, host, port, shard, key_file
    serve(Settings(*place, *https, max_body * 2**20, queue, patience, quiet, password_file))


@app.command()
def rotate(
    data: Annotated[Path | None, typer.Option(help="The folder of the trials.")] = None,
    database: Annotated[str | None, typer.Option(help="Or their database.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="The key file, if it is not DATA/master.key.")] = None,
    password_file: PasswordFile = None,
) -> None:
    """Encrypt everything that is stored under a new key."""
    with extra():
        from foldaway.service.database.store import rotate_key
        from foldaway.service.server import Settings, open_store

    rotate_key(open_store(Settings(data, database, key_file=key_file, password_file=password_file)))
    print("Everything stored is now encrypted under a new key; the old one is gone.")
