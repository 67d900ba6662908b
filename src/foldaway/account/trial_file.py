"""A trial's saved file as a store: its tallies, and how far their source was read, in one file written in one step.

The two can never disagree, so nothing is lost and nothing counts twice. The file holds no record, and is encrypted
under a key that lies elsewhere.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, Self, TypeVar

from foldaway.account.account import AccountStore, Durable
from foldaway.errors import StateError, instead_of
from foldaway.keeping.disk import remove_traces, sync_folder
from foldaway.keeping.locks import locked
from foldaway.keeping.saved import Positions, naming, of_kind
from foldaway.plan import Plan
from foldaway.trial import Trial

P = TypeVar("P", bound=Positions)


class TrialFile(AccountStore[Trial, P], Generic[P]):
    """The saved file of a trial, which one program at a time has to itself, until it is closed.

    Args:
        path: Where the file is, or is to be.
        plan: The plan.
        beginning: How far the source was read before anything was written.
        key: The trial's key; if left out, that of this machine's user.
        resume: The saved file to go on from; ``path`` itself need not be there yet. Without it, everything begins anew.

    Raises:
        StateError: Another program has it.
    """

    def __init__(
        self, path: Path, plan: Plan, beginning: P, *, key: bytes | None = None, resume: Path | None = None
    ) -> None:
        self.path = path
        self._plan, self._beginning, self._key = plan, beginning, key
        self._resume = resume
        with ExitStack() as held:
            taken = StateError(f"another program is writing to {path}; wait until it has ended.")
            held.enter_context(locked(path, taken))
            # Whoever was killed may have left a state less than a cohort apart from the next one (promise P2).
            remove_traces(path)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another program have the file."""
        self._held.close()

    def read(self) -> Durable[Trial, P]:
        """What is saved; the beginning if nothing is, yet.

        Raises:
            StateError: It is damaged, or is of another plan, key or kind of source.
            EndedError: The trial has ended.
        """
        if self._resume is None or (self._resume == self.path and not self.path.exists()):
            return Durable(Trial(self._plan, key=self._key), self._beginning)
        trial, positions = Trial.opened(self._resume, self._plan, key=self._key)
        # Whoever wrote it may have been cut off before the disk had it.
        with self._resume.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self._resume.parent)
        return Durable(trial, self._beginning if positions is None else self._its(positions))

    def _its(self, positions: Positions) -> P:
        with naming(self._resume or self.path):
            return of_kind(positions, type(self._beginning))

    def write(self, was: Durable[Trial, P], tallies: Trial, reached: P) -> Durable[Trial, P]:
        """Replace what is saved; when this returns, the new is there whatever crashes, and until then the old is."""
        kept = tallies.copy()
        kept.fix()
        unwritten = "Nothing is lost; when this is mended, the same command goes on."
        with instead_of(
            OSError, lambda error: StateError(f"{self.path} cannot be written: {error.strerror}. {unwritten}")
        ):
            kept.save(self.path, positions=reached)
        self._resume = self.path
        tallies.chronicle.ledger = kept.chronicle.ledger
        return Durable(kept, reached)
