"""The key of one trial: which it is, whether it is here, and when it is gone for good."""

from __future__ import annotations

import copy
import secrets

from foldaway.errors import EndedError, StateError
from foldaway.keeping.secret import Secret
from foldaway.keeping.user_keys import FileKey, destroy_user_key, user_file_key, user_key
from foldaway.plan import Plan
from foldaway.plan.vocabulary import SIPHASH


class TrialKey:
    """The key given, or else this machine's user's own for the design, which comes with the first record.

    Attributes:
        mark: Of the key that records were folded under; empty while there are none, or the plan needs no key.
        users_mark: Of the user's own key, once the trial has ended, if that was the trial's.
        destroyed: Whether the key is destroyed, so that no further record can be folded.
    """

    def __init__(self, plan: Plan, given: bytes | None) -> None:
        self._plan = plan
        self._secret = None if given is None else Secret(given)
        self._given = given is not None
        self.mark = self.users_mark = b""
        self.mark = self.mark_in_use()
        self.destroyed = False

    def restore(self, mark: bytes, *, destroyed: bool) -> None:
        """Go on from a state, which is refused if another key was given."""
        if self._given and not destroyed and mark not in (b"", self.mark):
            raise StateError("the state was made under another key; load it with that one.")
        self.mark, self.destroyed = mark, destroyed
        self._secret = None if destroyed else self._secret

    def mark_in_use(self) -> bytes:
        """The mark of the key that records are folded under now."""
        return self._secret.mark() if self._secret is not None and self._plan.keyed else self.mark

    def for_records(self) -> bytes | None:
        """What records get their keyed numbers under, if the plan needs these."""
        if self.destroyed:
            raise EndedError("the trial has ended: no further record can be folded.")
        if not self._plan.hashed:
            return None
        secret = self._held()
        if self._plan.clustering is not None and self._plan.bootstrap is not None:
            return secret.of_units(self._plan.fingerprint)
        if self._plan.clustering is not None:
            return secret.of_groups() if self._plan.hash == SIPHASH else secret.of_warehouse()
        # Records without a unit are numbered, each batch under a key of its own: no two records ever share weights.
        return secret.of_shard(secrets.token_bytes(16))

    def for_warehouse(self) -> str:
        """The group key, which a database deals units into groups by."""
        if self.destroyed:
            raise EndedError("the trial has ended: no further record can be folded.")
        return self._held().of_warehouse().decode()

    def for_levels(self) -> bytes:
        """What levels of segments that the plan does not list are hashed under."""
        return self._held().of_levels()

    def for_arms(self) -> bytes:
        """What identifiers draw their arms under, whether or not the plan needs keyed numbers."""
        if self.destroyed:
            raise EndedError("the trial has ended: its key was destroyed, so no further arm can be drawn.")
        return self._held().of_arms()

    def for_files(self) -> FileKey:
        """What saved files of the trial are encrypted under."""
        held = None if self._secret is None else self._secret.reveal()
        if self._given and held is not None:
            return FileKey(self._plan.design, held)
        return user_file_key(self._plan.design, held)

    def in_use_for_files(self) -> FileKey | None:
        """What saved files of the trial are encrypted under, if that key is here already."""
        found = None if self.destroyed else self.found()
        return None if found is None else FileKey(self._plan.design, found.reveal())

    def reveal(self) -> bytes:
        """The key, if there is one."""
        if self.destroyed or not self._plan.keyed:
            why = "the trial has ended." if self.destroyed else "the plan needs none."
            raise EndedError(f"there is no key here: {why}")
        return self._held().reveal()

    def found(self) -> Secret | None:
        """The key, or else the user's own, if it is there; whether or not records were folded under it."""
        if self._secret is not None and self._secret.held:
            return self._secret
        key = user_key(self._plan.design, new=False)
        return None if key is None else Secret(key)

    def _held(self) -> Secret:
        """The one given, or else the user's own, if it is the one that earlier records were folded under."""
        if self._secret is None:
            key = user_key(self._plan.design, new=not self.mark)
            secret = None if key is None else Secret(key)
            if secret is None or self.mark not in (b"", secret.mark()):
                raise EndedError(
                    "this trial was loaded without its key, and this machine's user does not have it: to fold further "
                    "records, load it with key= (or --key)."
                )
            self._secret = secret
        return self._secret

    def destroy(self, *, used: bool, everywhere: bool) -> None:
        """Overwrite the key here; everywhere, and if a record used it, the user's own where it is kept, too."""
        # Held and not given, it is the user's own: arms were drawn under it, or records hashed.
        if not self.destroyed and not self._given and (used or self._secret is not None):
            # A plan without keyed hashes has the user's own key for its saved files alone.
            key = None if self.mark else user_key(self._plan.design, new=False)
            self.users_mark = self.mark if key is None else Secret(key).mark()
        if self._secret is not None:
            self._secret.destroy()
        self.destroyed = True
        if everywhere and self.users_mark:
            destroy_user_key(self._plan.design, self.users_mark)

    def copy(self) -> TrialKey:
        """The same key in a place of its own, so that destroying one leaves the other; none if it is destroyed."""
        twin = copy.copy(self)
        twin._secret = Secret(self._secret.reveal()) if self._secret is not None and self._secret.held else None
        return twin

    def merge(self, other: TrialKey, *, used: bool, other_used: bool) -> TrialKey:
        """The key of the trial of both sets of records, which is refused if a unit could have records under both."""
        same = self.mark == other.mark
        if (self._plan.clustering is not None or self._plan.unlisted) and not same and used and other_used:
            raise StateError(
                "these trials were folded under different keys, so a unit or a level would count as two; "
                "give every worker the same key: fa.Trial(plan, key=trial.key), or --key on the command line."
            )
        merged = self.copy()
        merged.destroyed = self.destroyed or other.destroyed
        if (not used and not same) or (self._secret is None and same):
            theirs = other.copy()._secret
            if merged._secret is None or theirs is None or merged._secret.mark() != theirs.mark():
                merged._given = other._given
            merged._secret, merged.mark = theirs, other.mark
        if merged.destroyed:
            merged._secret = None
        return merged
