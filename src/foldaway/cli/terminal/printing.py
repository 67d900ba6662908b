"""What a command gives: effects on standard output, a trial's own or a server's answer, and files to send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

import foldaway as fa
from foldaway.cli.terminal.words import in_lines, tell
from foldaway.errors import RecordError, StateError, Unreleased, many
from foldaway.keeping.disk import replace_file
from foldaway.report.page.document import Report, require_place


def print_effects(trial: fa.Trial, *, json: bool = False, everything: bool = False) -> None:
    """Print the trial's effects; or, of one that is to be released, how far it is."""
    from foldaway.records.faults import none_folded

    if not trial.n:
        raise RecordError(none_folded(trial.dropped, "report"))
    try:
        effects = trial.read()
    except Unreleased as not_yet:
        tell(str(not_yet))
        return
    print(effects.to_json() if json else effects.to_string(all=everything))


def print_json(answer: Any) -> None:
    """Print something for machines."""
    print(msgspec.json.encode(answer).decode())


def print_answer(answer: dict[str, Any], as_json: bool, *, everything: bool = False) -> None:
    """Print the effects that a server has answered with."""
    from foldaway.cli.terminal.waiting import alarm

    if as_json:
        print_json(answer)
        return
    federated = answer.get("federated")
    if answer["final"] and answer["effects"] is not None:
        print(in_lines(f"{answer['name']} has ended; these effects are final.") + "\n")
    if federated is not None and (warning := alarm(federated)) is not None:
        print(f"{warning}\n")
    if answer["effects"] is None:
        why = (
            "too few records had arrived." if federated is None else federated["note"] or "an arm had too few reports."
        )
        print(in_lines(f"{answer['name']} has ended without effects: {why}"))
    else:
        print(fa.Effects.from_json(msgspec.json.encode(answer["effects"])).to_string(all=everything))
    if answer["left_out"]:
        what = many(answer["left_out"], "record" if federated is None else "message") + " left out at the end"
        print(f"\n{what}: fewer than a cohort.")


def place_of_report(output: Path | None, by_default: Path) -> Path:
    """Where a report goes, which is refused before the work if it cannot be written there."""
    target = by_default if output is None else output
    if str(target) != "-":
        require_place(target)
    return target


def save_report(page: Report, target: Path) -> None:
    """Write a report, and say so."""
    page.save(target)
    tell(f"Report written to {target} ({target.stat().st_size:,} bytes). Open it in a browser.")


def require_new(target: Path, overwrite: bool) -> None:
    """Refuse, before the work, a place that cannot be written to, or that holds a file: evidence may have no copy."""
    if str(target) == "-":
        return
    if not target.parent.is_dir():
        raise StateError(f"the certificate cannot be written to {target}: there is no folder {target.parent}.")
    if target.is_dir():
        raise StateError(f"{target} is a folder; give the certificate a name in it, with -o.")
    if target.exists() and not overwrite:
        raise StateError(f"{target} exists; choose another name with -o, or use --overwrite to replace it.")


def save_certificate(data: bytes, target: Path) -> None:
    """Write a certificate, or print it."""
    if str(target) == "-":
        print(data.decode(), end="")
        return
    replace_file(target, data)
    tell(f"Certificate written to {target}. `foldaway verify {target}` checks it, without a network.")
