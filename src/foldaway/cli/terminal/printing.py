"""Effects on standard output: a trial's own, or a server's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldaway.cli.terminal.words import in_lines, tell
from foldaway.errors import many

if TYPE_CHECKING:
    from foldaway.trial import Trial


def print_effects(trial: Trial, *, json: bool = False, everything: bool = False) -> None:
    """Print the trial's effects; or, of one that is to be released, how far it is.

    Raises:
        RecordError: There is nothing to print.
    """
    from foldaway.errors import RecordError, Unreleased
    from foldaway.records.faults import none_folded
    from foldaway.trial import quiet_effects

    if not trial.n:
        raise RecordError(none_folded(trial.dropped, "report"))
    try:
        effects = quiet_effects(trial)
    except Unreleased as not_yet:
        tell(str(not_yet))
        return
    print(effects.to_json() if json else effects.to_string(all=everything))


def print_json(answer: Any) -> None:
    """Print an answer of a server for machines."""
    import msgspec

    print(msgspec.json.encode(answer).decode())


def print_answer(answer: dict[str, Any], as_json: bool, *, everything: bool = False) -> None:
    """Print the effects that a server has answered with."""
    import msgspec

    from foldaway.cli.terminal.waiting import alarm
    from foldaway.effects import Effects

    if as_json:
        print_json(answer)
        return
    federated = answer.get("federated")
    if answer["final"] and answer["effects"] is not None:
        print(in_lines(f"{answer['name']} is closed; these effects are final.") + "\n")
    if federated is not None and (warning := alarm(federated)) is not None:
        print(f"{warning}\n")
    if answer["effects"] is None:
        why = (
            "too few records had arrived." if federated is None else federated["note"] or "an arm had too few reports."
        )
        print(in_lines(f"{answer['name']} is closed without effects: {why}"))
    else:
        print(Effects.from_json(msgspec.json.encode(answer["effects"])).to_string(all=everything))
    if answer["left_out"]:
        what = many(answer["left_out"], "record" if federated is None else "message") + " left out at the close"
        print(f"\n{what}: fewer than a cohort.")
