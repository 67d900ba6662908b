"""What is done with saved states: merge, look, seal, release; and where one may be saved."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.options import AllEffects, AsJson, KeyOfState, Overwrite, Save, Yes, flag
from foldaway.cli.terminal.printing import print_effects
from foldaway.cli.terminal.saved_trial import existing, file_of, finish, in_use, is_state, read_key
from foldaway.cli.terminal.words import confirm, tell
from foldaway.errors import SealedError, StateError, TooEarly

app = typer.Typer()

State = Annotated[
    Path, typer.Argument(metavar="STATE", help="A file written by --save, or the folder of a consumer's store.")
]


@app.command()
def merge(
    states: Annotated[list[Path], typer.Argument(metavar="STATE", help="States of trials of one plan.")],
    save: Save = None,
    overwrite: Overwrite = False,
    key: KeyOfState = None,
    json: AsJson = False,
    everything: AllEffects = False,
) -> None:
    """Merge the tallies of trials that ran separately. Prints the effects of the whole."""
    require_savable(save, None, overwrite)
    secret, seen = read_key(key), dict[bytes, Path]()
    whole: fa.Trial | None = None
    for path in states:
        part = fa.Trial.load(file_of(path), key=secret)
        if twin := seen.get(data := part.dumps()):
            raise StateError(f"{path} and {twin} are the same state; merging it twice would count its records twice.")
        seen[data] = path
        whole = part if whole is None else whole.merge(part)
    assert whole is not None  # the command line insists on one state
    if save is not None and whole.n:
        whole.save(save)
        tell_saved(save)
        tell(f"It also holds the ledgers of all {len(states):,} states.")
    with nullcontext() if save is None else interruptible(f"stopped after {save} was written."):
        print_effects(whole, json=json, everything=everything)


@app.command()
def seal(
    state: State,
    key: KeyOfState = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Print the effects without rounding; what is stored is rounded.")
    ] = False,
    yes: Yes = False,
    json: AsJson = False,
    everything: AllEffects = False,
) -> None:
    """End a trial: keep its effects, destroy tallies and key. This cannot be undone."""
    from foldaway.auditing.audit import audit
    from foldaway.keeping.saved import is_encrypted
    from foldaway.trial import open_saved

    file, exact_effects = existing(state), None
    with in_use(file):
        if is_encrypted(file):
            trial, positions = open_saved(file, key=read_key(key))
            if trial.plan.release is not None:
                raise TooEarly(
                    f"{state} was not sealed, because its plan publishes effects once, with noise (`release`). Use "
                    f"`foldaway release {state}`, which also destroys the exact tallies and the key."
                )
            if trial.chronicle.final_effects(trial.tallies, trial.dropped) is None and not exact:
                raise TooEarly(
                    f"{state} was not sealed, because too few units have come for effects that others may see. Use "
                    "--exact to seal it anyway; it then prints the exact effects once and stores none."
                )
            if (found_out := audit(trial.plan, trial.tallies)).findings:
                tell(f"Before the seal: {found_out.verdict()}")
            if not yes:
                question = "This destroys the tallies and the key, and cannot be undone. Seal?"
                confirm(question, f"{state} was not sealed; nothing has changed.")
            trial.seal(everywhere=False, found=found_out)
            exact_effects = replace(trial.read(), final=True)
            trial.save(file, positions=positions)
            trial.seal()  # only now: what a crash leaves must be readable
        head = finish(file, key)
    if exact_effects is None:
        tell(f"{state} was sealed before; only its rounded effects remain.")
    else:
        tell(f"{state} is sealed: its tallies and its key are destroyed.")
    tell(head)
    found = exact_effects if exact and exact_effects is not None else fa.Effects.load(file)
    print(found.to_json() if json else found.to_string(all=everything))


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
    from foldaway.trial import open_saved

    file = existing(state)
    with in_use(file):
        trial, positions = open_saved(file, key=read_key(key))
        before = trial.looks
        trial.look(last=last)
        if trial.looks != before:
            trial.save(file, positions=positions)
    if trial.looks == before:
        tell("No further look is due; this is what the last one found, beside the effects as they are now.")
    print_effects(trial, json=json, everything=everything)


@app.command()
def release(state: State, key: KeyOfState = None, json: AsJson = False, everything: AllEffects = False) -> None:
    """Publish a trial's effects once, with noise. This destroys the exact tallies.

    The plan says how much noise. Safe to repeat: the file then holds the release, and gives the same effects again.
    """
    from foldaway.keeping.saved import is_encrypted
    from foldaway.trial import open_saved

    file = existing(state)
    with in_use(file):
        if is_encrypted(file):
            trial, positions = open_saved(file, key=read_key(key))
            trial.release(everywhere=False)
            trial.save(file, positions=positions)  # before anybody sees it: drawn again, noise could be averaged away
            trial.seal()
            tell(f"{state} now contains the release and no exact tallies. Delete older copies of it.")
        tell(finish(file, key))
    found = fa.Effects.load(file)
    if found.plan.release is None:
        raise SealedError(f"{state} is sealed, and its plan has no `release`, so its effects have no noise.")
    print(found.to_json() if json else found.to_string(all=everything))


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
