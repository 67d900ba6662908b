"""``foldaway token …``: who may do what on a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from foldaway.cli.terminal.connecting import QUESTION, Authority, Reader, Server, Token, connect, extra
from foldaway.cli.terminal.options import AsJson, flag
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.server_settings import Config, Data, Database, KeyFile, PasswordFile, VersionKeys, opened
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
    trial: Annotated[
        str | None, typer.Argument(metavar="TRIAL", help="The trial's name, for ingest, site and read.")
    ] = None,
    units: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="For site: the most units that the site may bring in all.")
    ] = None,
    server: Annotated[str | None, typer.Option(envvar="FOLDAWAY_SERVER", help="The server's address.")] = None,
    token: Reader = None,
    ca: Authority = None,
    preset: Annotated[
        bool,
        flag(
            "preset", "Print an admin token that no server knows yet, to set as FOLDAWAY_ADMIN_TOKEN before it starts."
        ),
    ] = False,
    revoke_others: Annotated[
        bool, flag("revoke-others", "With --data or --database: revoke all other admin tokens, in case one was stolen.")
    ] = False,
    data: Data = None,
    database: Database = None,
    key_file: KeyFile = None,
    database_password_file: PasswordFile = None,
    version_keys: VersionKeys = None,
    config: Config = None,
) -> None:
    """Issue a token and print it. It is shown only once.

    A running server needs an admin token for this. Where the server's database and key are, --data or --database
    issue a token without one, for example when all admin tokens are lost.
    """
    if trial is None and scope in ("ingest", "site", "read"):
        raise ServerError(f"name the trial that the token is for: foldaway token issue {scope} TRIAL.")
    if (units is None) != (scope != "site"):
        raise ServerError(
            "a site's token, and no other, needs a number of units: foldaway token issue site TRIAL --units N."
        )
    if trial is not None and scope in ("admin", "metrics"):
        raise ServerError(f"this token is for the whole server: foldaway token issue {scope}, without a trial.")
    if (preset or revoke_others) and scope != "admin":
        raise ServerError("--preset and --revoke-others are for admin tokens.")
    offline = data is not None or database is not None
    if revoke_others and not offline:
        raise ServerError("--revoke-others needs the server's database: name it with --data or --database.")
    if preset:
        with extra():
            from foldaway.service.keys.tokens import new_token

        print(new_token())
    elif offline:
        tokens = opened(data, database, key_file, database_password_file, version_keys, new=False).tokens
        print(tokens.replace_admins() if revoke_others else tokens.issue(scope, trial, units)[1])
    elif not server or not token:
        raise ServerError(
            "name the server and an admin token, in --server and --token or FOLDAWAY_SERVER and FOLDAWAY_TOKEN; or, "
            "where the server's database is, --data or --database."
        )
    else:
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
