"""A trial in a file, or in the folder of a consumer's store: what commands ask of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import foldaway as fa
from foldaway.cli.terminal.words import confirm, tell
from foldaway.errors import EndedError, StateError
from foldaway.evidence.certificate import issue
from foldaway.evidence.ledger import head_sentence
from foldaway.keeping.disk import destroy_file
from foldaway.keeping.locks import locked
from foldaway.keeping.secret import read_or_make_key
from foldaway.keeping.user_keys import user_signer
from foldaway.report.page.document import Report

if TYPE_CHECKING:
    from foldaway.effects.outlook import Outlook
    from foldaway.plan import Flow


@dataclass(frozen=True)
class SavedTrial:
    """A trial in a file.

    Attributes:
        place: The file, or the folder of a consumer's store.
        key_file: The file of the key that it was saved with, if that is not this user's own.
    """

    place: Path
    key_file: Path | None = None

    def named(self, suffix: str) -> Path:
        """Where to write something about the trial, by default: beside it."""
        return self.place.with_name(f"{self.place.name}{suffix}")

    def effects(self, *, told: bool = False) -> fa.Effects:
        """Its exact effects, or those for others."""
        file, key = file_of(self.place), read_key(self.key_file)
        return tell_from(file, key) if told else own_effects(file, key)

    def outlook(
        self,
        *,
        records: float | None,
        days: float | None,
        per_day: float | None,
        width: float | None,
        chance: float,
        sequential: bool,
    ) -> Outlook:
        """What it can still find."""
        return self.effects().outlook(
            records=records,
            days=days,
            records_per_day=per_day,
            width=width,
            power=chance,
            sequential=sequential,
        )

    def report(self, *, exact: bool, flow: Flow | None = None) -> Report:
        """What it found, as a page; for others, unless it is to be exact."""
        from foldaway.keeping.saved import load
        from foldaway.report.page.page import effects_page

        file, key = file_of(self.place), read_key(self.key_file)
        saved = load(file, key)
        if saved.final is None:
            told = None if exact else tell_from(file, key)
            trial, positions = fa.Trial.opened(file, key=key)
            return trial.report(positions=positions, told=told, flow=flow)
        if exact:
            raise EndedError(
                f"{self.place} has ended, and its exact numbers are gone; leave out --exact for a rounded report."
            )
        return effects_page(fa.Effects.load(file), saved.ledger, flow)

    def end(self, *, exact: bool, without_effects: bool, confirmed: bool) -> tuple[fa.Effects | None, str]:
        """End it, after a question unless that is confirmed. Of a trial that has ended, finish what a crash has left.

        Returns:
            The effects that are left, or exact ones once, or none; and a sentence with the ledger's head.

        Raises:
            TooEarly: Effects would be withheld; nothing was changed.
        """
        from foldaway.keeping.saved import is_encrypted, load

        file, effects = existing(self.place), None
        with in_use(file):
            if is_encrypted(file):
                effects = self._end(file, without_effects, confirmed)
                tell(f"{self.place} has ended: its tallies and its key are destroyed.")
            else:
                rounded = "rounded " if exact else ""
                tell(f"{self.place} had ended before; only its {rounded}effects remain.")
            head = finish(file, self.key_file)
        if effects is None or not exact:
            final = load(file).final
            effects = None if final is not None and final.effects is None else fa.Effects.load(file)
        return effects, head

    def _end(self, file: Path, without_effects: bool, confirmed: bool) -> fa.Effects:
        """End a trial whose state is in the file; its effects in full, or with the plan's noise."""
        from foldaway.auditing.audit import audit
        from foldaway.trial import opened_too

        trial, positions = fa.Trial.opened(file, key=read_key(self.key_file))
        if not without_effects:
            trial.require_effects()
        found = None if trial.plan.release is not None else audit(trial.plan, trial.tallies)
        if found is not None and found.findings:
            tell(f"Before the end: {found.verdict()}")
        if others := trial.other_states(file):
            sentence = opened_too(others)
            tell(sentence[0].upper() + sentence[1:])
        if not confirmed:
            question = "This destroys the tallies and the key, and cannot be undone. End the trial?"
            confirm(question, f"{self.place} was not ended; nothing has changed.")
        trial.conclude(without_effects=without_effects, found=found)
        effects = replace(trial.read(), final=True)
        trial.save(file, positions=positions)  # before anybody sees it: drawn again, noise could be averaged away
        trial.destroy_key()  # only now: what a crash leaves must be readable
        return effects

    def certificate(self) -> bytes:
        """What was done and found, signed by this user."""
        from foldaway.keeping.saved import is_encrypted, load
        from foldaway.report.page.kept import planned

        file = existing(self.place)
        with in_use(file):
            if is_encrypted(file):
                trial, positions = fa.Trial.opened(file, key=read_key(self.key_file))
                effects: str | None = trial.told().to_json()
                trial.chronicle.audited(trial.tallies)
                trial.save(file, positions=positions)
                plan, ledger = trial.plan, trial.chronicle.ledger
            else:
                saved = load(file)
                if saved.final is None or not saved.ledger:
                    raise StateError(f"{file} has no ledger, so there is nothing to certify.")
                plan, effects, ledger = fa.Plan.loads(saved.final.plan), saved.final.effects, saved.ledger
        if user_signer().key not in {entry.key for entry in ledger}:
            raise StateError(f"another user has signed the ledger of {file}; only they can issue its certificate.")
        return issue(user_signer(), plan.canonical().decode(), effects, ledger, planned(plan)).dumps()


def own_effects(file: Path, key: bytes | None) -> fa.Effects:
    """The effects in a state, exactly; of a trial that has ended, those that are left."""
    from foldaway.keeping.saved import load

    if (file.exists() and not is_state(file)) or load(file, key).final is not None:
        return fa.Effects.load(file)
    return fa.Trial.opened(file, key=key)[0].read()


def tell_from(file: Path, key: bytes | None) -> fa.Effects:
    """Effects for others from a saved state, which remembers what was told."""
    from foldaway.keeping.saved import is_encrypted

    if file.is_file() and not is_encrypted(file):
        return fa.Effects.load(file)
    with in_use(file):
        trial, positions = fa.Trial.opened(file, key=key)
        told = trial.told()
        trial.save(file, positions=positions)
    return told


def finish(file: Path, key: Path | None) -> str:
    """Destroy the keys of a trial that has ended: its own, if it is the user's, and a file's; its ledger's head."""
    from foldaway.keeping.saved import load
    from foldaway.trial import finish_ending

    if load(file).final is None:
        return ""
    if key is not None:
        try:
            destroy_file(key)  # overwritten before it is removed
        except OSError as error:
            tell(f"The trial has ended, but its key {key} cannot be destroyed: {error.strerror}.")
    return head_sentence(finish_ending(file, given=key is not None and not key.exists()).head)


def in_use(file: Path) -> AbstractContextManager[None]:
    """Hold a state while it is read and written, or refuse if another program holds it."""
    return locked(file, StateError(f"another program is using {file}; wait until it has finished."))


def read_key(file: Path | None) -> bytes | None:
    """The key in a file; none if it is this user's own."""
    return None if file is None else read_or_make_key(file, new=False)


def existing(state: Path, hint: str = "") -> Path:
    """The file of a state, which must be there; or that it is not, and what else it may be."""
    file = file_of(state)
    if not file.is_file():
        raise StateError(f"there is no state {state}. {hint}".rstrip())
    return file


def file_of(state: Path) -> Path:
    """The file of a state: itself, or the one in a consumer's store; in an archive, its effects."""
    if not state.is_dir():
        return state
    if (state / "foldaway.db").exists():
        raise StateError(f"{state} is the folder of a server: ask the server for a trial, by its address or its name.")
    if (state / "effects.json").exists():  # an archive
        return state / "effects.json"
    if not (state / "state").exists():
        raise StateError(f"the store {state} holds no records yet.")
    return state / "state"


def is_state(path: Path) -> bool:
    """Whether a file is a saved state."""
    from foldaway.keeping.saved import is_saved

    with path.open("rb") as file:
        return is_saved(file.read(8))
