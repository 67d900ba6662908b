"""What is done with saved states: merge, effects, report, export, seal, release; and where one may be saved."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import foldaway as fa
from foldaway.cli.terminal.connecting import QUESTION, Authority, Reader, connect
from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.options import (
    AllEffects,
    AsJson,
    Days,
    KeyOfState,
    Overwrite,
    PerDay,
    Save,
    Width,
    Yes,
    written,
)
from foldaway.cli.terminal.printing import place_of_report, print_answer, print_effects, save_report
from foldaway.cli.terminal.words import confirm, tell
from foldaway.errors import SealedError, StateError, TooEarly
from foldaway.evidence.ledger import head_sentence
from foldaway.keeping.disk import destroy_file, replace_file
from foldaway.keeping.locks import locked
from foldaway.keeping.secret import read_or_make_key

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
def effects(
    state: Annotated[
        str,
        typer.Argument(
            metavar="STATE|STORE|URL",
            help="A file written by --save, the folder of a consumer's store, or the address of a server's trial: "
            "https://host/v1/trials/NAME.",
        ),
    ],
    key: KeyOfState = None,
    token: Reader = None,
    ca: Authority = None,
    json: AsJson = False,
    everything: AllEffects = False,
) -> None:
    """Print the effects of a trial. Effects from a state or a store are not rounded, so they are for yourself."""
    if state.startswith(("http://", "https://")):
        from foldaway.federated.link import trial_address

        address, name = trial_address(state)
        with connect(address.removesuffix(f"/v1/trials/{name}"), token or "", ca, patience=QUESTION) as client:
            answer = client.effects(name)
        print_answer(answer, json, everything=everything)
        return

    found = own_effects(file_of(Path(state)), read_key(key))
    print(found.to_json() if json else found.to_string(all=everything))


@app.command()
def outlook(
    state: State,
    records: Annotated[
        float | None, typer.Option(help="Look ahead to this many records in total; by default, twice as many as now.")
    ] = None,
    days: Days = None,
    records_per_day: PerDay = None,
    width: Width = None,
    power: Annotated[float, typer.Option(help="The chance of finding the smallest effect.")] = 0.8,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Use the any-time interval, which is valid however often you look.")
    ] = False,
    key: KeyOfState = None,
    json: AsJson = False,
) -> None:
    """Say what a trial can still find, and when. The numbers are not rounded, so they are for yourself."""
    ahead = own_effects(file_of(state), read_key(key)).outlook(
        records=records, days=days, records_per_day=records_per_day, width=width, power=power, sequential=sequential
    )
    print(ahead.to_json() if json else ahead)


@app.command()
def report(
    state: State,
    output: Annotated[Path | None, written("STATE.html by default, - to print")] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Do not round. The page is then for yourself, not for others.")
    ] = False,
    key: KeyOfState = None,
) -> None:
    """Write what a trial found as one HTML page. It needs no other file and no network."""
    from foldaway.keeping.saved import load
    from foldaway.report.page.page import effects_page
    from foldaway.trial import open_saved

    file, secret = file_of(state), read_key(key)
    target = place_of_report(output, state.with_name(f"{state.name}.html"))
    saved = load(file, secret)
    if saved.final is not None and exact:
        raise SealedError(f"{state} is sealed, and its exact numbers are gone; leave out --exact for a rounded report.")
    if saved.final is not None:
        page = effects_page(fa.Effects.load(file), saved.ledger)
    else:
        told: fa.Effects | None = None if exact else tell_from(file, secret)
        trial, positions = open_saved(file, key=secret)
        page = trial.report(positions=positions, told=told)
    print(page) if str(target) == "-" else save_report(page, target)


@app.command()
def export(state: State, output: Annotated[Path, written("- to print")] = Path("-"), key: KeyOfState = None) -> None:
    """Write the effects for others, as JSON. They are rounded, and updated only after the trial has grown enough."""
    text = tell_from(file_of(state), read_key(key)).to_json()
    if str(output) == "-":
        print(text)
    else:
        replace_file(output, f"{text}\n".encode())
        tell(f"Effects written to {output}, rounded for others.")


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
    with locked(file, StateError(f"another program is using {state}; wait until it has finished.")):
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
def release(state: State, key: KeyOfState = None, json: AsJson = False, everything: AllEffects = False) -> None:
    """Publish a trial's effects once, with noise. This destroys the exact tallies.

    The plan says how much noise. Safe to repeat: the file then holds the release, and gives the same effects again.
    """
    from foldaway.keeping.saved import is_encrypted
    from foldaway.trial import open_saved

    file = existing(state)
    with locked(file, StateError(f"another program is using {state}; wait until it has finished.")):
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


def existing(state: Path) -> Path:
    """The file of a state, which must be there."""
    file = file_of(state)
    if not file.is_file():
        raise StateError(f"there is no state {state}.")
    return file


def finish(file: Path, key: Path | None) -> str:
    """Destroy the keys of a sealed trial, its own, if it is the user's, and one in a file; say its ledger's head."""
    from foldaway.keeping.saved import load
    from foldaway.trial import finish_sealing

    if load(file).final is None:
        return ""
    if key is not None:
        try:
            destroy_file(key)  # overwritten before it is removed
        except OSError as error:
            tell(f"The trial is closed, but its key {key} cannot be destroyed: {error.strerror}.")
    return head_sentence(finish_sealing(file, given=key is not None and not key.exists()).head)


def own_effects(file: Path, key: bytes | None) -> fa.Effects:
    """The effects in a state, exactly; of a trial that has ended, those that are left."""
    from foldaway.keeping.saved import load
    from foldaway.trial import open_saved

    if (file.exists() and not is_state(file)) or load(file, key).final is not None:
        return fa.Effects.load(file)
    return open_saved(file, key=key)[0].read()


def tell_from(file: Path, key: bytes | None) -> fa.Effects:
    """Effects for others from a saved state, which remembers what was told."""
    from foldaway.keeping.saved import is_encrypted
    from foldaway.trial import open_saved

    if file.is_file() and not is_encrypted(file):
        return fa.Effects.load(file)
    with locked(file, StateError(f"another program is using {file}; wait until it has finished.")):
        trial, positions = open_saved(file, key=key)
        told = trial.told()
        trial.save(file, positions=positions)
    return told


def read_key(file: Path | None) -> bytes | None:
    """The key in a file; none if it is this user's own."""
    return None if file is None else read_or_make_key(file, new=False)


def file_of(state: Path) -> Path:
    """The file of a state: itself, or the one in a consumer's store."""
    if not state.is_dir():
        return state
    if (state / "foldaway.db").exists():
        raise StateError(f"{state} is the folder of a server: ask the server, with foldaway trial effects NAME.")
    if not (state / "state").exists():
        raise StateError(f"the store {state} holds no records yet.")
    return state / "state"


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


def is_state(path: Path) -> bool:
    """Whether a file is a saved state."""
    from foldaway.keeping.saved import is_saved

    with path.open("rb") as file:
        return is_saved(file.read(8))
