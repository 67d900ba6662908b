"""Effects on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldaway.trial import Trial


def print_effects(trial: Trial, *, json: bool = False, all_kinds: bool = False, adjust: str | None = None) -> None:
    """Print the trial's effects.

    Raises:
        RecordError: There is nothing to print.
    """
    from foldaway.errors import RecordError
    from foldaway.records.faults import none_folded
    from foldaway.trial import quiet_effects

    if not trial.n:
        raise RecordError(none_folded(trial.dropped, "report"))
    effects = quiet_effects(trial, adjust)
    print(effects.to_json() if json else effects.to_string(all_kinds=all_kinds))
