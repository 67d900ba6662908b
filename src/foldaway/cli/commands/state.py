"""``foldaway look``: a planned look; and where a state may be saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.options import AllEffects, AsJson, KeyOfState, flag
from foldaway.cli.terminal.printing import print_effects
from foldaway.cli.terminal.saved_trial import existing, in_use, is_state, read_key
from foldaway.cli.terminal.words import tell
from foldaway.errors import StateError

app = typer.Typer()

State = Annotated[
    Path, typer.Argument(metavar="STATE", help="A file written by --save, or the folder of a consumer's store.")
]


@app.command()
def look(
    state: State,
    last: Annotated[
        bool,
        flag("last", "The trial ends here, with less information than was planned: spend all of the error rate."),
    ] = False,
    key: KeyOfState = None,
    json: AsJson = False,
    everything: AllEffects = False,
) -> None:
    """Take the planned look that is due, and print what it found.

    The look is saved in the state. The plan's `looks` say when one is due. Safe to repeat: without new information
    nothing more is spent.
    """
    file = existing(state, "A server takes the looks of its trials by itself: foldaway effects NAME shows them.")
    with in_use(file):
        trial, positions = fa.Trial.opened(file, key=read_key(key))
        before = trial.looks
        trial.look(last=last)
        if trial.looks != before:
            trial.save(file, positions=positions)
    if trial.looks == before:
        tell("No further look is due; this is what the last one found, beside the effects as they are now.")
    print_effects(trial, json=json, everything=everything)


def tell_saved(path: Path) -> None:
    """Say where the state is."""
    tell(f"State written to {path} ({path.stat().st_size:,} bytes).")


def require_savable(target: Path | None, resume: Path | None, overwrite: bool) -> None:
    """Refuse a place that cannot be written, or that holds something else: records cannot be had again.

    Args:
        target: Where the state is to go, if anywhere.
        resume: The state that the run goes on from, if any, and which it may replace.
        overwrite: Whether it may replace another state. It may never replace anything that is no state.
    """
    if target is None:
        return
    if not target.parent.is_dir():
        raise StateError(f"the state cannot be saved as {target}: there is no folder {target.parent}.")
    if not os.access(target.parent, os.W_OK):
        raise StateError(f"the state cannot be saved as {target}: the folder may not be written to.")
    if not target.exists():
        return
    if not target.is_file() or not is_state(target):
        raise StateError(f"{target} exists and is not a foldaway state; save under another name.")
    if not overwrite and (resume is None or resume.resolve() != target.resolve()):
        raise StateError(
            f"{target} already contains a state: continue it with --resume {target}, or use --overwrite to replace it."
        )
