"""``foldaway token …``: who may do what on a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from foldaway.cli.terminal.connecting import QUESTION, Authority, Reader, Server, Token, connect, extra
from foldaway.cli.terminal.options import AsJson, flag
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.server_settings import Config, Data, Database, KeyFile, PasswordFile, VersionKeys, opened
from foldaway.cli.terminal.words import WIDTH
from foldaway.errors import ServerError
from foldaway.table import ABSENT, text_table

app = typer.Typer(name="token", help="Manage tokens, which say who may do what on a server.", no_args_is_help=True)


@app.command("list")
def list_tokens(server: Server, token: Token, ca: Authority = None, json: AsJson = False) -> None:
    """List all tokens, without their secrets. A team's token lists those for the team's trials.

    The last use is a day. For tokens that send records it is not kept: it would tell when a record came.
    """
    with connect(server, token, ca, patience=QUESTION) as client:
        rows = client.tokens()
    if json:
        print_json(rows)
        return
    cells = [[row["id"], _until(row), _last_use(row), _about(row)] for row in rows]
    print(text_table(["id", "expires", "last use", "token"], cells, left=4, width=WIDTH))


def _until(row: dict[str, Any]) -> str:
    if row["status"] != "valid":
        return str(row["status"])
    return "never" if row["expires"] is None else _day(row["expires"])


def _last_use(row: dict[str, Any]) -> str:
    return "not kept" if row["scope"] in ("ingest", "site") else row["used"] or ABSENT


def _about(row: dict[str, Any]) -> str:
    what = " ".join(filter(None, (row["scope"], row["trial"], row["team"])))
    return what if row["label"] is None else f"{what}: {row['label']}"


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()


_UNITS = {"d": 86_400, "h": 3_600, "m": 60}


def _seconds(text: str) -> int:
    """A duration such as 90d in seconds."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or not 0 < int(number) < 10**5:
        raise typer.BadParameter("write a whole number of days, hours or minutes: 90d, 12h or 30m.")
    return int(number) * _UNITS[unit]


@app.command("issue")
def issue(
    scope: Annotated[
        Literal["admin", "team", "ingest", "site", "invite", "read", "metrics"],
        typer.Argument(
            metavar="SCOPE",
            help="admin for everything, team to create, read and end the trials of one team, ingest to send records or "
            "reports of devices to a trial, site to send a site's tallies, invite to invite devices, read for effects, "
            "metrics for /metrics.",
        ),
    ],
    trial: Annotated[
        str | None, typer.Argument(metavar="TRIAL", help="The trial's name, for ingest, site, invite and read.")
    ] = None,
    team: Annotated[str | None, typer.Option(metavar="NAME", help="For team: which team.")] = None,
    label: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the token is for; `foldaway token list` shows it.")
    ] = None,
    expires: Annotated[
        int | None,
        typer.Option(parser=_seconds, metavar="TIME", help="When the token stops working: after 90d, 12h or 30m."),
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

    A running server needs an admin token for this, or for the trials of a team that team's token. Where the server's
    database and key are, --data or --database issue a token without one, for example when all admin tokens are lost.
    """
    if trial is None and scope in ("ingest", "site", "invite", "read"):
        raise ServerError(f"name the trial that the token is for: foldaway token issue {scope} TRIAL.")
    if trial is not None and scope in ("admin", "team", "metrics"):
        raise ServerError(f"this token is not for one trial: foldaway token issue {scope}, without a trial.")
    if (units is None) != (scope != "site"):
        raise ServerError(
            "a site's token, and no other, needs a number of units: foldaway token issue site TRIAL --units N."
        )
    if (team is None) != (scope != "team"):
        raise ServerError("a team's token, and no other, names its team: foldaway token issue team --team NAME.")
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
        from foldaway.service.keys.tokens import Wanted

        wanted = Wanted(scope, trial, units, team, label, expires)
        if (fault := wanted.fault()) is not None:
            raise ServerError(fault)
        print(tokens.replace_admins(wanted) if revoke_others else tokens.issue(wanted)[1])
    elif not server or not token:
        raise ServerError(
            "name the server and an admin token, in --server and --token or FOLDAWAY_SERVER and FOLDAWAY_TOKEN; or, "
            "where the server's database is, --data or --database."
        )
    else:
        with connect(server, token, ca) as client:
            made = client.issue_token(scope, trial, units=units, team=team, label=label, expires_in=expires)
        print(made["token"])


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


@app.command("invite")
def invite(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="The trial's name.")],
    server: Server,
    token: Token,
    count: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many devices to invite.")] = 1,
    ca: Authority = None,
) -> None:
    """Print invitations, one on each line. Each lets one device join a trial that asks for invitations.

    They are shown only once: the server stores hashes of those that are unused. Hand each to one person's app.
    """
    with connect(server, token, ca) as client:
        print("\n".join(client.invite(trial, count)))
