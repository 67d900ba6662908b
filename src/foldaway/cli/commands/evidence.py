"""``foldaway verify``: proof for those who do not trust whoever ran a trial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

import foldaway as fa
from foldaway.cli.terminal.options import AsJson, KeyOfState, given
from foldaway.cli.terminal.printing import print_json
from foldaway.cli.terminal.saved_trial import existing, read_key
from foldaway.cli.terminal.words import in_lines
from foldaway.errors import UNREADABLE, StateError, instead_of
from foldaway.evidence import verifying
from foldaway.evidence.ledger import ANSWERED, Ledger

app = typer.Typer()


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate.")],
    head: Annotated[list[str] | None, given("HASH", "A published head of its ledger; repeat for several.")] = None,
    signer: Annotated[str | None, given("KEY", "The public key that must have signed it.")] = None,
    state: Annotated[
        Path | None, given("STATE", "Tallies that were kept: compute every number again from them.")
    ] = None,
    key: KeyOfState = None,
    json: AsJson = False,
) -> None:
    """Check a certificate offline. Says what it proves and what it does not; exits with 1 if anything is wrong."""
    from foldaway.keeping.saved import is_saved

    with instead_of(OSError, lambda error: StateError(f"cannot read the certificate {file}: {error.strerror}.")):
        data = file.read_bytes()
    if is_saved(data):
        raise StateError(f"{file} is a saved state. `foldaway certificate {file}` writes its certificate.")
    for each in head or []:
        if len(each) < verifying.FEWEST_DIGITS:
            raise StateError(f"--head {each} is too short: give at least {verifying.FEWEST_DIGITS} digits of the hash.")
    checked = verifying.verify(data, head or [], signer)
    if state is not None and checked.good:
        _replicate(checked, data, state, read_key(key))
    if json:
        print_json({"good": checked.good, **msgspec.structs.asdict(checked)})
    else:
        print(_text(file, checked, data))
    if not checked.good:
        raise typer.Exit(1)


def _replicate(checked: verifying.Checked, data: bytes, state: Path, key: bytes | None) -> None:
    """Compute the effects again from tallies that were kept, and see whether they are the ones of the certificate."""
    read = verifying.read_certificate(data)
    assert not isinstance(read, str)
    body, trial = read.certificate, fa.Trial.load(existing(state), key=key)
    answered = Ledger(body.ledger).last(ANSWERED)
    if body.effects is None or answered is None or not answered.content["tallies"]:
        checked.unproven.append(f"That the numbers follow from {state}: the effects were not read from kept tallies.")
    elif trial.plan.canonical().decode() != body.plan:
        checked.faults.append(f"{state} is a state of another plan.")
    elif answered.content["tallies"] != trial.chronicle.commitment(
        body.effects, trial.tallies, trial.dropped, trial.secret
    ):
        checked.faults.append(f"The effects cannot be read from {state}: its tallies are other ones.")
    else:
        checked.proven.append(f"Every number of the effects was computed again from the tallies in {state}: all agree.")


def _text(file: Path, checked: verifying.Checked, data: bytes) -> str:
    if not checked.good:
        parts = {f"{file} is not a valid certificate. What is wrong:": checked.faults}
    else:
        parts = {
            f"{file} is valid.\n\nWhat it proves:": checked.proven,
            "What the signer states (times are UTC):": checked.stated,
            "What it cannot prove:": checked.unproven,
        }
    said = [
        "\n".join([title, *(in_lines(f"· {sentence}", indent="  ") for sentence in sentences)])
        for title, sentences in parts.items()
    ]
    return "\n\n".join([*said, *(_effects_in(data) if checked.good else ())])


def _effects_in(data: bytes) -> Iterator[str]:
    """The effects in a certificate. Somebody else wrote them: they may be of no form, and must not steer a terminal."""
    read = verifying.read_certificate(data)
    assert not isinstance(read, str)
    if (text := read.certificate.effects) is None:
        return
    try:
        effects = replace(fa.Effects.from_json(text), final=Ledger(read.certificate.ledger).ended)
        shown = "".join(each if each.isprintable() or each == "\n" else "?" for each in str(effects))
    except UNREADABLE:
        yield "The effects in it cannot be shown: this version of foldaway does not read their form."
    else:
        yield f"The effects in it:\n\n{shown}"
