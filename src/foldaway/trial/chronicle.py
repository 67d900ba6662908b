"""What happened in a trial, and what others were told of it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import msgspec

from foldaway.effects import Effects
from foldaway.effects.door import TOLD
from foldaway.effects.looks_taken import Look
from foldaway.effects.read_flow import at_the_end
from foldaway.effects.reading import read_effects
from foldaway.effects.withheld import why_withheld
from foldaway.errors import StateError
from foldaway.evidence.ledger import ENDED, KEY_DESTROYED, Ledger, now, software
from foldaway.inference.fixing import fixed
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, Told, may_tell, too_early
from foldaway.keeping.secret import Secret
from foldaway.keeping.user_keys import user_signer
from foldaway.plan import Plan
from foldaway.records import Faults
from foldaway.tallies import Held
from foldaway.trial.key import TrialKey

if TYPE_CHECKING:
    from foldaway.auditing.finding import Audit


class Chronicle:
    """What happened in one trial, which this machine's user signs, and what was told last.

    Args:
        plan: The plan, fixed now.
        records: How many there are by now.

    Attributes:
        ledger: What happened, once that is to outlive the process.
        told: What was told last.
        looks: The planned looks that were taken.
    """

    def __init__(self, plan: Plan, records: int = 0) -> None:
        self._plan = plan
        self._begun = now(), records
        self.ledger = Ledger()
        self.told: Told | None = None
        self.looks: tuple[Look, ...] = ()

    def register(self) -> str:
        """Begin the ledger with the plan, if it has not begun, and give its head, to be published elsewhere."""
        time, records = self._begun
        self.ledger = self.ledger.registered(user_signer(), self._plan.fingerprint, round_count(records), time)
        return self.ledger.head

    def written(self, records: int, key: Secret) -> Ledger:
        """The ledger once a state with so many records, encrypted under this key, is written."""
        self.register()
        used = self.ledger.used(user_signer(), key.mark().hex())
        if self._plan.release is not None:  # when the trial has doubled depends on exact counts
            return used
        return used.written(user_signer(), round_count(records), self._plan.privacy.cohort)

    def audited(self, tallies: Held, found: Audit | None = None) -> None:
        """Note whether anybody could be solved for by whoever reads the tallies in the clear; not before a release."""
        from foldaway.auditing.audit import audit  # not for those who end nothing

        if self._plan.release is not None:  # what an audit finds depends on exact tallies
            return
        self.register()
        found = found or audit(self._plan, tallies)
        self.ledger = self.ledger.audited(user_signer(), found.attacks, found.solved, found.solved_with_keys)

    def tell(self, tallies: Held, dropped: Faults, key: TrialKey) -> Effects:
        """Effects for others: see `Trial.told`."""
        if self._plan.release is not None:  # what the gate says depends on exact counts
            return read_effects(self._plan, tallies, dropped)
        census = tallies.census()
        if may_tell(self._plan.privacy, census, self._last_census):
            self.told = Told(census, self._rounded(tallies, dropped))
            self._answered(self.told.effects, tallies, dropped, key)
        if self.told is None or not self.told.effects:
            raise too_early(self._plan.privacy)
        return Effects.from_json(self.told.effects)

    def final_effects(self, tallies: Held, dropped: Faults) -> str | None:
        """The effects that are left when the trial has ended, as JSON; none if too few stand behind them."""
        if self._plan.release is not None:
            return read_effects(self._plan, tallies, dropped).to_json() if tallies.released else None
        if may_tell(self._plan.privacy, tallies.census(), self._last_census, growth=0):
            return self._exact_flow(self._rounded(tallies, dropped), tallies, dropped)
        if self.told is None or not self.told.effects:
            return None
        same = self.told.census == tallies.census()
        return self._exact_flow(self.told.effects, tallies, dropped) if same else self.told.effects

    def _exact_flow(self, effects: str, tallies: Held, dropped: Faults) -> str:
        """The effects with a flow diagram of exact counts, if they have one."""
        if self._plan.flow is None:
            return effects
        return at_the_end(Effects.from_json(effects), read_effects(self._plan, tallies, dropped)).to_json()

    def withheld(self, tallies: Held, dropped: Faults) -> str | None:
        """Why effects would be withheld if the trial ended now, as a sentence; None if none would."""
        final = self.final_effects(tallies, dropped)
        return str(too_early(self._plan.privacy)) if final is None else why_withheld(Effects.from_json(final))

    @property
    def _last_census(self) -> Census | None:
        return None if self.told is None else self.told.census

    def _rounded(self, tallies: Held, dropped: Faults) -> str:
        return read_effects(self._plan, tallies, dropped, TOLD, looks=self.looks).to_json()

    def _answered(self, effects: str, tallies: Held, dropped: Faults, key: TrialKey) -> None:
        """Note effects that others see, and the tallies they can be read from again, if these are the ones kept."""
        self.register()
        commitment = self.commitment(effects, tallies, dropped, key)
        self.ledger = self.ledger.answered(user_signer(), effects, commitment)

    def commitment(self, effects: str, tallies: Held, dropped: Faults, key: TrialKey) -> str:
        """A hash of the tallies as they are kept, under the trial's key; empty if other effects are read from these.

        It ties effects that were told to tallies that somebody has kept, and tells nothing to whoever lacks the key.
        """
        secret = key.found()
        if secret is None or tallies.released:
            return ""
        kept = fixed(tallies)
        told = self._rounded(kept, dropped)
        theirs = effects in (told, self._exact_flow(told, kept, dropped))
        return secret.commitment(msgspec.msgpack.encode(kept.state())) if theirs else ""

    def end(self, tallies: Held, dropped: Faults, key: TrialKey, found: Audit | None) -> None:
        """Note the audit, the final effects and the end, as long as tallies and key are there."""
        self.register()
        secret, final = key.found(), self.final_effects(tallies, dropped)
        if secret is not None:
            self.ledger = self.ledger.used(user_signer(), secret.mark().hex())
        self.audited(tallies, found)
        if final is not None:
            self._answered(final, tallies, dropped, key)
        records = None if final is None else round_count(sum(tallies.counts))
        self.ledger = self.ledger.add(user_signer(), ENDED, {"records": records, **software()})

    def key_destroyed(self, mark: bytes) -> None:
        """Note that the key with this mark is gone, if it was in use."""
        if mark.hex() in self.ledger.keys_left():
            self.ledger = self.ledger.add(user_signer(), KEY_DESTROYED, {"key": mark.hex()})

    def merge(self, other: Chronicle) -> Chronicle:
        """Of two trials that are merged."""
        if self.looks and other.looks and self.looks != other.looks:
            raise StateError(
                "both trials have planned looks of their own, which cannot be taken back: merge shards first, and take "
                "looks at the whole."
            )
        merged = copy.copy(self)
        merged.looks = self.looks or other.looks
        merged.told = other.told if self.told is None else self.told.plus(other.told)
        if other.ledger:  # workers of one run have none
            merged.ledger = self.ledger.merge(other.ledger, user_signer())
        return merged
