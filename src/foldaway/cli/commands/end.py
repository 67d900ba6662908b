"""``foldaway end``: the end of a trial, wherever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldaway.cli.terminal.connecting import Authority, Reader
from foldaway.cli.terminal.options import AllEffects, AsJson, KeyOfState, WithoutEffects, Yes, flag
from foldaway.cli.terminal.printing import print_answer
from foldaway.cli.terminal.saved_trial import SavedTrial
from foldaway.cli.terminal.served_trial import ServedTrial
from foldaway.cli.terminal.where import ItsServer, Where, find
from foldaway.cli.terminal.words import tell
from foldaway.errors import ServerError, StateError

app = typer.Typer()


@app.command()
def end(
    where: Where,
    without_effects: WithoutEffects = False,
    yes: Yes = False,
    exact: Annotated[
        bool, flag("exact", "Print the effects without rounding, this once; what is stored is rounded.")
    ] = False,
    key: KeyOfState = None,
    server: ItsServer = None,
    token: Reader = None,
    ca: Authority = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Federated: for how many seconds reports still count.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="Federated: the share of devices that is enough, above 0 and up to 1.")
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="On a server: write certificate, effects and report to a new folder, then remove the trial there.",
        ),
    ] = None,
    remove: Annotated[
        bool, flag("remove", "On a server: remove the trial there once it has ended, with its effects and tokens.")
    ] = False,
    json: AsJson = False,
    everything: AllEffects = False,
) -> None:
    """End a trial: keep its effects, destroy its tallies and its key. This cannot be undone.

    If the plan has a release, the effects contain its noise. If any effect would be withheld, the command refuses and
    changes nothing. It asks first; where there is no terminal, it needs --yes.

    If records stay on devices, the command waits for their last reports and shows how many have come. If you interrupt
    it, the server keeps waiting; run the same command without options to watch again.
    """
    if share is not None and not 0 < share <= 1:
        raise ServerError("--share is above 0, and at most 1: the share of the devices whose reports are enough.")
    if archive is not None and archive.exists():
        raise StateError(f"{archive} is there already: name a new folder for the archive.")
    trial = find(where, key, server, token, ca)
    if isinstance(trial, ServedTrial):
        answer, head = trial.end(
            deadline=deadline,
            share=share,
            without_effects=without_effects,
            exact=exact,
            confirmed=yes,
            removed=remove or archive is not None,
        )
        print_answer(answer, json, everything=everything)
        tell(head)
        if answer["final"]:
            _put_away(trial, archive, remove)
        return
    if deadline is not None or share is not None:
        raise StateError("--deadline and --share are for trials on a server, whose records stay on devices.")
    if archive is not None or remove:
        raise StateError("--archive and --remove are for trials on a server; this one is in a file of yours.")
    _end_saved(trial, exact, without_effects, yes, json, everything)


def _put_away(trial: ServedTrial, archive: Path | None, remove: bool) -> None:
    """Remove a trial that has ended from its server, after its archive is on the disk."""
    if archive is not None:
        trial.archive(archive)
        tell(f"Certificate, effects and report are in {archive}.")
    if archive is not None or remove:
        trial.remove()
        tell(f"{trial.name} is removed from the server, with its tokens.")


def _end_saved(
    trial: SavedTrial, exact: bool, without_effects: bool, confirmed: bool, json: bool, everything: bool
) -> None:
    """End a trial in a file or a store, and print its effects."""
    effects, head = trial.end(exact=exact, without_effects=without_effects, confirmed=confirmed)
    tell(head)
    if effects is not None:
        print(effects.to_json() if json else effects.to_string(all=everything))
    else:
        tell(f"{trial.place} has ended without effects.")
