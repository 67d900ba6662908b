"""The last step of a trial's end in its file, which a crash may have left to do."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foldaway.evidence.ledger import KEY_DESTROYED, Ledger
from foldaway.keeping.listed_places import forget_places
from foldaway.keeping.saved import load
from foldaway.keeping.user_keys import destroy_user_key, user_signer
from foldaway.plan import Plan


def finish_ending(path: Path, *, given: bool = False) -> Ledger:
    """Destroy the user's key of a trial that has ended, in case a crash came before, and note it in its file.

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
            forget_places(each)
    if ledger.head != saved.ledger.head:
        msgspec.structs.replace(saved, ledger=ledger).save(path, None)
    return ledger
