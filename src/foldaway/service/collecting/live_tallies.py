"""The tallies of one server's shard in memory: what is durable, and what was folded since.

Until there are coefficients, these are moments, and beside them there is a trial of the pending records alone. If
another server fixes the coefficients meanwhile, these are mapped with them, and added to what it has made of the shard.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from foldaway.inference.fixing import is_rich
from foldaway.keeping.cohort import Newcomers
from foldaway.trial import Trial


class LiveTallies:
    """The tallies that the database has, with the records folded since.

    Attributes:
        trial: What is durable with what is pending.
        version: The version in the database that it is built upon.
    """

    def __init__(self, durable: Trial, nothing: Trial, version: int) -> None:
        self._nothing = nothing
        self.trial = durable
        self.wrote(version)

    def wrote(self, version: int) -> None:
        """Nothing is pending any more. This cannot fail, since what was pending is durable, or given up."""
        self.version = version
        self.trial.newcomers = Newcomers()
        self._pending = self._nothing.copy() if is_rich(self.trial.tallies) else None

    def copy(self) -> Self:
        """The same, to go back to."""
        found = copy(self)
        found.trial, found._pending = self.trial.copy(), None if self._pending is None else self._pending.copy()
        return found

    @property
    def pending(self) -> int:
        """Records folded since the last commit."""
        return self.trial.newcomers.records

    @property
    def durable(self) -> int:
        """Records that are durable."""
        return self.trial.n - self.pending

    def fold(self, records: Any, unreadable: int = 0) -> int:
        """Fold records; how many were good.

        Raises:
            RecordError: They are refused; nothing was folded.
        """
        before = self.trial.n
        # Numbers may come as text: one bad cell makes text of its column, and `foldaway send` is judged as `run` is.
        self.trial.fold(records, text=True, unreadable=unreadable)
        if self._pending is not None:  # the first has refused what this would
            self._pending.fold(records, text=True, unreadable=unreadable)
        return self.trial.n - before

    def map_onto(self, durable: Trial, version: int) -> None:
        """Put what is pending upon sums that another server has made of the same durable records.

        What is pending was in no fit: its moments are mapped with the coefficients as they are.
        """
        assert self._pending is not None  # only of moments can another server make sums
        self.version, self.trial, self._pending = version, durable.merge(self._pending), None

    def dumps(self) -> bytes:
        """The tallies as they are stored; of moments, with rare levels pooled, which may become common here."""
        return self.trial.exchanged() if is_rich(self.trial.tallies) else self.trial.copy().dumps()
