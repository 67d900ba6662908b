"""Commands around a server: serve, register and ask for trials, send files to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldaway.cli.terminal.delimiter import Delimiter
from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.words import in_lines, tell_waiting
from foldaway.errors import ServerError, not_installed

if TYPE_CHECKING:  # each command imports what it needs, so that --help is quick
    from foldaway.client import Client

app = typer.Typer()
trial_app = typer.Typer(help="Trials on a server.", no_args_is_help=True)
app.add_typer(trial_app, name="trial")

Server = Annotated[str, typer.Option(envvar="FOLDAWAY_SERVER", help="The server's address.")]
Token = Annotated[str, typer.Option(envvar="FOLDAWAY_TOKEN", help="A token for it; better given in FOLDAWAY_TOKEN.")]
Authority = Annotated[
    Path | None, typer.Option("--ca", envvar="FOLDAWAY_CA", help="The certificate authority of an https server.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
TrialName = Annotated[str, typer.Argument(metavar="NAME", help="The trial's name.")]


@app.command()
def serve(
    data: Annotated[Path | None, typer.Option(help="A folder for the trials, kept in SQLite there.")] = None,
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
    max_body: Annotated[int, typer.Option(min=1, help="The largest batch, in MiB as it comes.")] = 32,
    queue: Annotated[int, typer.Option(min=1, help="Batches in hand at once; more are told to come back.")] = 64,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds in which a batch must arrive.")] = 60.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what fails, not every request.")] = False,
) -> None:
    """Collect records over HTTP and keep none of them."""
    with extra():
        from foldaway.service.server import Settings, serve

    serve(
        Settings(
            data,
            database,
            host,
            port,
            shard,
            key_file,
            certificate,
            certificate_key,
            max_body=max_body * 2**20,
            queue=queue,
            patience=patience,
            quiet=quiet,
        )
    )


@app.command()
def rotate(
    data: Annotated[Path | None, typer.Option(help="The folder of the trials.")] = None,
    database: Annotated[str | None, typer.Option(help="Or their database.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="The key file, if it is not DATA/master.key.")] = None,
) -> None:
    """Encrypt everything that is stored under a new key."""
    with extra():
        from foldaway.service.database.rotation import rotate_key
        from foldaway.service.server import Settings, open_store

    rotate_key(open_store(Settings(data, database, key_file=key_file)))
    print("Everything stored is now encrypted under a new key; the old one is gone.")


@trial_app.command("create")
def create(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a .toml or .json file.")],
    server: Server,
    token: Token,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Register a plan; prints a token to send records with and one to read effects with."""
    from foldaway.plan import Plan

    text = Plan.load(plan).to_toml()
    with _client(server, token, ca) as client:
        made = client.create(text)
    if json:
        _print_json(made)
        return
    name, mark = made["name"], f"(fingerprint {made['fingerprint'][:12]}…)"
    if made.get("new", True):
        print(in_lines(f"{name} is registered {mark}. Shown this once:"))
    else:
        closed = " and is closed: it takes no more records" if made["status"] == "closed" else ""
        print(in_lines(f"{name} {mark} exists already{closed}. New tokens beside the old ones, shown this once:"))
    print(f"  ingest token  {made['ingest_token']}")
    print(f"  read token    {made['read_token']}")


@trial_app.command("effects")
def effects(name: TrialName, server: Server, token: Token, ca: Authority = None, json: AsJson = False) -> None:
    """The effects of a trial so far."""
    with _client(server, token, ca) as client:
        answer = client.effects(name)
    _print_answer(answer, json)


@trial_app.command("close")
def close(
    name: TrialName,
    server: Server,
    token: Token,
    ca: Authority = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Federated: seconds in which reports still count.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="Federated: the share of devices that is enough, above 0 and up to 1.")
    ] = None,
    without_effects: Annotated[bool, typer.Option("--without-effects", help="Also if it has none, for good.")] = False,
    json: AsJson = False,
) -> None:
    """End a trial: no more records, its key destroyed, its effects final.

    Where records stay on devices, waits for their last reports and shows how many have come. Interrupted, the server
    goes on waiting; the same command without options shows it.
    """
    from foldaway.cli.terminal.waiting import close_and_wait

    if share is not None and not 0 < share <= 1:
        raise ServerError("--share is above 0, and at most 1: the share of the devices whose reports are enough.")
    with _client(server, token, ca) as client:
        answer = close_and_wait(client, name, deadline, share, without_effects)
    _print_answer(answer, json)


@trial_app.command("status")
def status(name: TrialName, server: Server, token: Token, ca: Authority = None, json: AsJson = False) -> None:
    """How a trial stands."""
    with _client(server, token, ca) as client:
        answer = client.status(name)
    if json:
        _print_json(answer)
    else:
        _print_statuses([answer])
        if answer.get("federated") is not None:
            from foldaway.cli.terminal.waiting import who

            print(f"\n{who(answer['federated'], answer['pending'])}")


@trial_app.command("list")
def list_trials(server: Server, token: Token, ca: Authority = None, json: AsJson = False) -> None:
    """All trials."""
    with _client(server, token, ca) as client:
        answer = client.trials()
    if json:
        _print_json(answer)
    else:
        _print_statuses(answer)


@app.command()
def send(
    name: TrialName,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files or globs of records.")],
    server: Server,
    token: Token,
    ca: Authority = None,
    delimiter: Delimiter = None,
    key: Annotated[
        Path | None,
        typer.Option(
            envvar="FOLDAWAY_SENDER_KEY",
            metavar="FILE",
            help="The sender's secret key, by which files are known again; made if not there yet.",
        ),
    ] = None,
) -> None:
    """Send files of records to a trial. Sent again after a break, it goes on where the server has it durable."""
    from foldaway.cli.terminal.progress import file_progress
    from foldaway.sources.formats.paths import expand

    with extra():
        from foldaway.cli.commands.send import own_key, send_files
    paths = expand(files)
    with (
        interruptible("stopped; the same command again goes on from what the server has."),
        _client(server, token, ca) as client,
        file_progress(paths, "sending") as progress,
    ):
        done = send_files(client, name, paths, progress, key=own_key(key), delimiter=delimiter)
    print(f"{done.sent:,} records sent." + (f" {done.known:,} were there already." if done.known else ""))
    if done.pending:
        print(in_lines(f"{done.pending:,} records wait on the server until their cohort has come together."))
        print("Should the server stop before that, send the same files again.")


def _client(server: str, token: str, ca: Path | None) -> Client:
    with extra():
        from foldaway.client import Client

    return Client(server, token, verify=True if ca is None else str(ca), told=tell_waiting)


@contextmanager
def extra() -> Iterator[None]:
    """Imports of packages that come with the extra."""
    try:
        yield
        return
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
    if missing == "foldaway":
        raise ServerError("this installation of foldaway is incomplete; install it again.")
    raise ServerError(not_installed(missing, "serve"))


def _print_json(answer: Any) -> None:
    import msgspec

    print(msgspec.json.encode(answer).decode())


def _print_answer(answer: dict[str, Any], as_json: bool) -> None:
    import msgspec

    from foldaway.cli.terminal.waiting import alarm
    from foldaway.effects import Effects

    if as_json:
        _print_json(answer)
        return
    federated = answer.get("federated")
    if answer["final"] and answer["effects"] is not None:
        print(in_lines(f"{answer['name']} is closed; these effects are final.") + "\n")
    if federated is not None and (told := alarm(federated)) is not None:
        print(f"{told}\n")
    if answer["effects"] is None:
        why = "an arm had too few records." if federated is None else federated["note"] or "an arm had too few reports."
        print(in_lines(f"{answer['name']} is closed without effects: {why}"))
    else:
        print(Effects.from_json(msgspec.json.encode(answer["effects"])))
    if answer["left_out"]:
        what = "records" if federated is None else "messages of devices"
        print()
        print(in_lines(f"{answer['left_out']:,} {what} were left out at the close: they were fewer than a cohort."))


def _print_statuses(rows: list[dict[str, Any]]) -> None:
    if not rows:
        print("There are no trials yet; register one with foldaway trial create.")
        return
    plain = [row for row in rows if row.get("federated") is None]
    federated = [row for row in rows if row.get("federated") is not None]
    print("\n\n".join(_statuses(some, counts) for some, counts in ((plain, _RECORDS), (federated, _MESSAGES)) if some))


# What is counted. Where records stay on devices, it is their messages that wait for a cohort.
_RECORDS = ("durable", "pending", "cohort", "left out")
_MESSAGES = ("records", "messages: pending", "cohort", "left out")


def _statuses(rows: list[dict[str, Any]], counts: tuple[str, ...]) -> str:
    from foldaway.table import text_table

    cells = [
        [row["name"], _stage(row), *(f"{row[field]:,}" for field in ("records", "pending", "cohort", "left_out"))]
        for row in rows
    ]
    return text_table(["trial", "status", *counts], cells, left=2)


def _stage(row: dict[str, Any]) -> str:
    """Open or closed; replying in between, where the reports of devices are waited for."""
    federated = row.get("federated")
    return str(row["status"] if federated is None else federated["stage"])
