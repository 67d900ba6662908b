"""Effects on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldaway.trial import Trial


def print_effects(trial: Trial, *, json: bool = False, everything: bool = False) -> None:
    """Print the trial's effects; or, of one that is to be released, how far it is.

    Raises:
        RecordError: There is nothing to print.
    """
    from foldaway.cli.terminal.words import tell
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
