"""How a trial ends in its file, and what is then left in it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foldaway.errors import TooEarly
from foldaway.evidence.ledger import KEY_DESTROYED, Ledger
from foldaway.keeping.saved import load
from foldaway.keeping.user_keys import destroy_user_key, user_signer
from foldaway.plan import Plan
from foldaway.trial.trial import Trial


def prepare_sealing(trial: Trial) -> None:
    """Before a store is closed for good: draw the release, if there is to be one, and see that effects are left.

    Raises:
        TooEarly: There would be none.
    """
    if trial.plan.release is not None:
        trial.release(everywhere=False)
    if trial.chronicle.final_effects(trial.tallies, trial.dropped) is None:
        raise TooEarly(
            "the trial was not closed, because it would end without effects: too few units have come for effects "
            "that others may see. Wait for more, or use `foldaway seal STORE --exact`."
        )
    trial.seal(everywhere=False)


def finish_sealing(path: Path, *, given: bool = False) -> Ledger:
    """Destroy the user's key of a sealed trial, in case a crash came before that, and note it in the trial's file.

    Args:
        path: The file of what is left of the trial.
        given: Whether the trial had a key of its own, which is destroyed.
    """
    saved = load(path)
    assert saved.final is not None
    mark, ledger = saved.final.key_mark, saved.ledger
    if mark:
        destroy_user_key(Plan.loads(saved.final.plan).design, mark)
    left = ledger.keys_left()
    others = [each for each in left if each != mark.hex()]
    for each in left:
        # Of several keys, such as other users' whose states were merged, nobody here knows which was given.
        if each not in others or (given and len(others) == 1):
            ledger = ledger.add(user_signer(), KEY_DESTROYED, {"key": each})
    if ledger.head != saved.ledger.head:
        msgspec.structs.replace(saved, ledger=ledger).save(path, None)
    return ledger
