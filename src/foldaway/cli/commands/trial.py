"""``foldaway trial …``: trials on a server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import QUESTION, Authority, Server, Token, connect
from foldaway.cli.terminal.options import AsJson, PlanFile
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.words import in_lines, tell
from foldaway.evidence.ledger import head_sentence
from foldaway.table import text_table

app = typer.Typer(name="trial", help="Manage trials on a server.", no_args_is_help=True)


@app.command("create")
def create(plan: PlanFile, server: Server, token: Token, ca: Authority = None, json: AsJson = False) -> None:
    """Register a plan. Prints a token to send records with and one to read effects with.

    Repeated with the same plan, it issues two more tokens and changes nothing else, as long as the trial is open.
    """
    loaded = fa.Plan.load(plan)
    with connect(server, token, ca) as client:
        made = client.create(loaded.to_toml())
    if json:
        print_json(made)
        return
    name, mark = made["name"], f"(fingerprint {made['fingerprint'][:12]}…)"
    if made.get("new", True):
        print(in_lines(f"{name} is registered {mark}. Its tokens, shown this once:"))
    else:
        more = "Earlier tokens stay valid (`foldaway token list`). Two more, shown this once:"
        print(in_lines(f"{name} {mark} exists already. {more}"))
    print(f"  ingest token  {made['ingest_token']}")
    print(f"  read token    {made['read_token']}")
    tell(_following(loaded))
    if made.get("ledger_head") and made.get("new", True):
        print("\n" + in_lines(head_sentence(made["ledger_head"])))


@app.command("status")
def status(
    server: Server,
    token: Token,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The trial's name; by default, all trials.")
    ] = None,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Show the state of a trial, or of all trials."""
    with connect(server, token, ca, patience=QUESTION) as client:
        answer = client.trials() if name is None else client.status(name)
    if json:
        print_json(answer)
        return
    _print_statuses(answer if isinstance(answer, list) else [answer])
    if isinstance(answer, dict) and answer.get("federated") is not None:
        from foldaway.cli.terminal.waiting import who

        print(f"\n{who(answer['federated'])}")


def _count(n: int | None) -> str:
    """A number; of a trial that is released with noise, most are not told."""
    return "–" if n is None else f"{n:,}"


def _print_statuses(rows: list[dict[str, Any]]) -> None:
    if not rows:
        print("There are no trials yet; register one with foldaway trial create.")
        return
    tables, teams = [], any(row.get("team") for row in rows)
    for federated, heading in ((False, "durable"), (True, "records")):
        cells = [
            # Where records stay on devices, there is a third stage.
            [
                row["name"],
                *([row.get("team") or "–"] if teams else []),
                row["federated"]["stage"] if federated else row["status"],
                *(_count(row[field]) for field in ("records", "cohort", "left_out")),
            ]
            for row in rows
            if (row.get("federated") is not None) == federated
        ]
        if cells:
            names = ["trial", *(["team"] if teams else []), "status"]
            tables.append(text_table([*names, heading, "cohort", "left out at end"], cells, left=len(names)))
    devices = "Counts of devices are rounded too, unless you have an admin token."
    records = (
        "Counts of records are rounded, and in effects each arm's by itself, so that their sum may differ a little."
    )
    rounded = f"{records} {devices if any(row.get('federated') for row in rows) else ''}"
    print("\n\n".join([*tables, in_lines(rounded)]))


def _following(plan: fa.Plan) -> str:
    """What to do once a trial is registered."""
    if plan.federated is None:
        return f"Next, with the ingest token as FOLDAWAY_TOKEN: foldaway send {plan.name} FILE"
    if plan.unit is not None:
        return f"Next, a token for each site: foldaway token issue site {plan.name} --label SITE --units MOST"
    if plan.federated.invited:
        return f"Next, invitations for devices, which take the ingest token too: foldaway token invite {plan.name}"
    return "Next, give devices the ingest token."
