"""What is asked of a trial, wherever it is: ``foldaway effects``, ``foldaway report`` and ``foldaway certificate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldaway.cli.terminal.connecting import Authority, Reader
from foldaway.cli.terminal.options import AllEffects, AsJson, KeyOfState, Replace, flag, written
from foldaway.cli.terminal.printing import (
    place_of_report,
    print_answer,
    require_new,
    save_certificate,
    save_report,
)
from foldaway.cli.terminal.served_trial import ServedTrial
from foldaway.cli.terminal.where import ItsServer, Where, find
from foldaway.errors import EndedError, EstimateError

app = typer.Typer()


@app.command()
def effects(
    where: Where,
    key: KeyOfState = None,
    server: ItsServer = None,
    token: Reader = None,
    ca: Authority = None,
    told: Annotated[
        bool, flag("told", "Print what others may see: rounded, and renewed only after the trial has grown enough.")
    ] = False,
    exact: Annotated[
        bool, flag("exact", "Do not round. On a server this needs an admin token, and the server counts it.")
    ] = False,
    json: AsJson = False,
    everything: AllEffects = False,
) -> None:
    """Print the effects of a trial.

    Effects from a file or a store are exact, and for yourself; --told prints those for others. A server answers with
    those for others.
    """
    if told and exact:
        raise EstimateError("effects are --told or --exact, not both.")
    trial = find(where, key, server, token, ca)
    if isinstance(trial, ServedTrial):
        print_answer(trial.effects(exact=exact), json, everything=everything)
        return

    found = trial.effects(told=told)
    if exact and found.rounded:
        raise EndedError(f"{where} has only rounded effects; leave out --exact.")
    print(found.to_json() if json else found.to_string(all=everything))


@app.command()
def report(
    where: Where,
    output: Annotated[Path | None, written("WHERE.html by default, - to print")] = None,
    exact: Annotated[
        bool, flag("exact", "Do not round. The page is then for yourself. On a server this needs an admin token.")
    ] = False,
    flow: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who was assessed and excluded before there were records: a TOML file with the plan's [flow].",
        ),
    ] = None,
    key: KeyOfState = None,
    server: ItsServer = None,
    token: Reader = None,
    ca: Authority = None,
) -> None:
    """Write what a trial found as one HTML page. It needs no other file and no network."""
    from foldaway.plan import Flow

    before = None if flow is None else Flow.load(flow)
    trial = find(where, key, server, token, ca)
    target = place_of_report(output, trial.named(".html"))
    page = trial.report(exact=exact, flow=before)
    print(page) if str(target) == "-" else save_report(page, target)


@app.command()
def certificate(
    where: Where,
    output: Annotated[Path | None, written("WHERE.certificate.json by default, - to print")] = None,
    overwrite: Replace = False,
    key: KeyOfState = None,
    server: ItsServer = None,
    token: Reader = None,
    ca: Authority = None,
) -> None:
    """Write a signed certificate of what was done and found. End the trial first if it is over."""
    trial = find(where, key, server, token, ca)
    target = trial.named(".certificate.json") if output is None else output
    require_new(target, overwrite)
    save_certificate(trial.certificate(), target)
