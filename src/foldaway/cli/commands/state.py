"""``foldaway merge``, ``report`` and ``release``: what is done with saved states, and where a state may be saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foldaway.cli.terminal.options import Adjust, AllKinds, AsJson, Overwrite, Save
from foldaway.cli.terminal.words import tell
from foldaway.errors import StateError

if TYPE_CHECKING:  # each command imports what it needs, so that --help is quick
    from foldaway.report.page.document import Report

app = typer.Typer()


@app.command()
def merge(
    states: Annotated[list[Path], typer.Argument(metavar="STATE", help="States of trials of one plan.")],
    save: Save = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
    all_kinds: AllKinds = False,
    adjust: Adjust = None,
) -> None:
    """Merge the tallies of trials that ran apart, and print the effects of the whole."""
    from foldaway.cli.terminal.printing import print_effects
    from foldaway.trial import Trial

    require_savable(save, None, overwrite)
    seen: dict[bytes, Path] = {}
    whole: Trial | None = None
    for path in states:
        part = Trial.load(path)
        if twin := seen.get(data := part.dumps()):
            raise StateError(f"{path} and {twin} are the same state; merging it twice would count its records twice.")
        seen[data] = path
        whole = part if whole is None else whole.merge(part)
    assert whole is not None  # the command line insists on one state
    if save is not None and whole.n:
        whole.save(save)
        tell_saved(save)
    print_effects(whole, json=json, all_kinds=all_kinds, adjust=adjust)


@app.command()
def report(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The tallies, as --save wrote them.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; STATE.html by default, - to print.")
    ] = None,
    adjust: Adjust = None,
) -> None:
    """Write what a trial found as one HTML page, to read or to send: no other file, no network."""
    from foldaway.report.page.document import require_place
    from foldaway.trial import open_saved

    target = state.with_name(f"{state.name}.html") if output is None else output
    printed = str(target) == "-"
    if not printed:
        require_place(target)  # before the work
    trial, positions = open_saved(state)
    page = trial.report(adjust=adjust, positions=positions)
    print(page) if printed else save_report(page, target)


@app.command()
def release(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The tallies, as --save wrote them.")],
    json: AsJson = False,
    adjust: Adjust = None,
) -> None:
    """Tell a trial's effects once, with the noise that its plan asks for; the exact tallies are then gone.

    Safe to repeat: the state then holds the release, and gives the same effects again.
    """
    import warnings

    from foldaway.cli.terminal.printing import print_effects
    from foldaway.errors import SampleRatioWarning
    from foldaway.keeping.disk import overwrite
    from foldaway.keeping.locks import locked
    from foldaway.trial import Trial

    taken = StateError(f"another run is saving to {state}; wait until it has ended.")
    require_savable(state, state, overwrite=False)
    with locked(state, taken):
        trial = Trial.load(state)
        if not trial.released:
            with state.open("r+b") as exact, warnings.catch_warnings():
                warnings.simplefilter("ignore", SampleRatioWarning)  # it stands above the effects
                trial.release(everywhere=False)
                trial.save(state)  # before anybody sees it: drawn again, noise could be averaged away
                overwrite(exact)
            tell(f"{state} holds the release now, and no exact tallies. Delete older copies of it.")
        trial.seal()
    print_effects(trial, json=json, adjust=adjust)


def save_report(page: Report, target: Path) -> None:
    """Write a report, and say so."""
    page.save(target)
    tell(f"Report written to {target} ({target.stat().st_size:,} bytes). Open it in a browser.")


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
    if not target.is_file() or not _is_state(target):
        raise StateError(f"{target} exists and is no foldaway state; save to another name.")
    if not overwrite and (resume is None or resume.resolve() != target.resolve()):
        raise StateError(
            f"{target} holds a state: go on from it with --resume {target}, or say --overwrite to replace it."
        )


def _is_state(path: Path) -> bool:
    from foldaway.keeping.saved import is_saved

    with path.open("rb") as file:
        return is_saved(file.read(8))
