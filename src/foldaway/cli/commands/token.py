"""``foldaway token …``: who may do what on a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from foldaway.cli.commands.serve import Config, Data, Database, KeyFile, PasswordFile, VersionKeys
from foldaway.cli.terminal.connecting import QUESTION, Authority, Server, Token, connect, extra
from foldaway.cli.terminal.options import AsJson, flag
from foldaway.cli.terminal.printing import print_json
from foldaway.errors import ServerError
from foldaway.table import ABSENT, text_table

app = typer.Typer(name="token", help="Manage tokens, which say who may do what on a server.", no_args_is_help=True)


@app.command("list")
def list_tokens(server: Server, token: Token, ca: Authority = None, json: AsJson = False) -> None:
    """List all tokens, without their secrets."""
    with connect(server, token, ca, patience=QUESTION) as client:
        rows = client.tokens()
    if json:
        print_json(rows)
        return
    cells = [
        [
            row["id"],
            row["scope"],
            row["trial"] or ABSENT,
            datetime.fromtimestamp(row["created"], UTC).isoformat(timespec="minutes").replace("+00:00", "Z"),
            "revoked" if row["revoked"] else "valid",
        ]
        for row in rows
    ]
    print(text_table(["id", "scope", "trial", "issued", "status"], cells, left=5))


@app.command("issue")
def issue(
    scope: Annotated[
        Literal["admin", "ingest", "site", "read", "metrics"],
        typer.Argument(
            metavar="SCOPE",
            help="admin for everything, ingest to send records or reports of devices to a trial, site to send a site's "
            "tallies, read for effects, metrics for /metrics.",
        ),
    ],
    server: Server,
    token: Token,
    trial: Annotated[
        str | None, typer.Argument(metavar="TRIAL", help="The trial's name, for ingest, site and read.")
    ] = None,
    units: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="For site: the most units that the site may bring in all.")
    ] = None,
    ca: Authority = None,
) -> None:
    """Issue a token and print it. It is shown only once."""
    if trial is None and scope in ("ingest", "site", "read"):
        raise ServerError(f"name the trial that the token is for: foldaway token issue {scope} TRIAL.")
    if (units is None) != (scope != "site"):
        raise ServerError(
            "a site's token, and no other, needs a number of units: foldaway token issue site TRIAL --units N."
        )
    if trial is not None and scope in ("admin", "metrics"):
        raise ServerError(f"this token is for the whole server: foldaway token issue {scope}, without a trial.")
    with connect(server, token, ca) as client:
        print(client.issue_token(scope, trial, units)["token"])


@app.command("revoke")
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `foldaway token list` shows it.")],
    server: Server,
    token: Token,
    ca: Authority = None,
) -> None:
    """Revoke a token. Other servers on the same database follow within a second."""
    with connect(server, token, ca) as client:
        client.revoke_token(id)
    print(f"The token {id} is revoked.")


@app.command("new")
def new() -> None:
    """Print a new token. No server knows it yet. Set it as FOLDAWAY_ADMIN_TOKEN before you start the server."""
    with extra():
        from foldaway.service.keys.tokens import new_token

    print(new_token())


@app.command("recover")
def recover(
    data: Data = None,
    database: Database = None,
    key_file: KeyFile = None,
    database_password_file: PasswordFile = None,
    version_keys: VersionKeys = None,
    config: Config = None,
    revoke_others: Annotated[
        bool, flag("revoke-others", "Revoke all other admin tokens, in case one was stolen.")
    ] = False,
) -> None:
    """Issue an admin token when all others are lost. It needs the server's database and key, but no running server."""
    with extra():
        from foldaway.service.server import Settings, open_store

    settings = Settings(
        data, database, key_file=key_file, password_file=database_password_file, version_keys=version_keys
    )
    store = open_store(settings, new=False)
    print(store.tokens.recover(revoke_others=revoke_others))
