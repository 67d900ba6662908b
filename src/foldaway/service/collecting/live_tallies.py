"""The tallies of one server's shard in memory: what is durable, and what was folded since.

Until there are coefficients, these are moments, and beside them there is a trial of the pending records alone. If
another server fixes the coefficients meanwhile, these are mapped with them, and added to what it has made of the shard.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from foldaway.account.pace import Pace, Waiting
from foldaway.keeping.cohort import Newcomers
from foldaway.trial import Trial


class LiveTallies:
    """The tallies that the database has, with the records folded since.

    Attributes:
        trial: What is durable with what is pending.
        version: The version in the database that it is built upon.
        waiting: How long what is pending waits to be stored.
    """

    def __init__(self, durable: Trial, nothing: Trial, version: int, pace: Pace | None = None) -> None:
        self._nothing = nothing
        self._pace = pace or Pace()
        self.trial = durable
        self.wrote(version)

    def wrote(self, version: int) -> None:
        """Nothing is pending any more. This cannot fail, since what was pending is durable, or given up."""
        self.version = version
        self.trial.written()
        self.waiting = Waiting(self.trial.plan.privacy, self._pace)
        self._pending = self._nothing.copy() if self.trial.unfixed else None

    def copy(self) -> Self:
        """The same, to go back to."""
        found = copy(self)
        found.trial, found._pending = self.trial.copy(), None if self._pending is None else self._pending.copy()
        found.waiting = copy(self.waiting)
        return found

    @property
    def pending(self) -> int:
        """Records folded since the last commit."""
        return self.trial.newcomers.records

    @property
    def durable(self) -> int:
        """Records that are durable."""
        return self.trial.n - self.pending

    def fold(self, records: Any, unreadable: int = 0, *, several: bool = False) -> int:
        """Fold the records of a batch, or of several; how many were good.

        Raises:
            RecordError: They are refused; nothing was folded.
        """
        before, pending = self.trial.n, self.trial.newcomers
        self.trial.newcomers = Newcomers()
        try:
            # Numbers may come as text: one bad cell makes text of its column, and `foldaway send` is judged as `run`.
            self.trial.fold(records, text=True, unreadable=unreadable)
        finally:
            own = self.trial.newcomers
            self.trial.newcomers = (pending + own).within(self.trial.plan.privacy)
        self.waiting.came(Newcomers() if several else own, self.trial.newcomers)
        if self._pending is not None:  # the first has refused what this would
            self._pending.fold(records, text=True, unreadable=unreadable)
        return self.trial.n - before

    def map_onto(self, durable: Trial, version: int) -> None:
        """Put what is pending upon sums that another server has made of the same durable records.

        What is pending was in no fit: its moments are mapped with the coefficients as they are.
        """
        assert self._pending is not None  # only of moments can another server make sums
        self.version, self.trial, self._pending = version, durable.merge(self._pending), None

    @property
    def unfixed(self) -> bool:
        """Whether these are moments, of which another server may make sums."""
        return self.trial.unfixed
