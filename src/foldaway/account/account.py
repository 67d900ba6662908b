"""An account of one trial: what is durable, what is pending upon it, and how far the source of both was read.

Whoever collects has these, and the gate of promise P2 between them. A commit makes what is pending durable, a cohort at
a time, in one step with whatever makes a repetition harmless (promise P4): the list of the files that were folded, the
place reached in a stream, the numbers of batches or messages. If a commit fails, the account falls back to what is
durable, and the source sends again what was not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from foldaway.account.pace import Pace, Waiting
from foldaway.errors import Conflict
from foldaway.keeping.cohort import Newcomers
from foldaway.plan import Plan


class Tallies(Protocol):
    """What an account is of: a trial, or one server's share of a federated one."""

    plan: Plan
    newcomers: Newcomers

    @property
    def n(self) -> int:
        """The number of records."""
        ...

    def copy(self) -> Self:
        """The same, to be folded into by itself."""
        ...

    def merge(self, other: Self) -> Self:
        """Those of both."""
        ...


T = TypeVar("T", bound=Tallies)
R = TypeVar("R")  # how far a source was read, or the numbers of what is pending
F = TypeVar("F")


class Durable(NamedTuple, Generic[T, R]):
    """What a store holds.

    Attributes:
        tallies: The tallies.
        reached: How far their source was read, as an account goes on from there.
        version: How many times they were written, where several programs may write.
    """

    tallies: T
    reached: R
    version: int = 0


class Lost(NamedTuple, Generic[R]):
    """What was pending and had to be given up.

    Attributes:
        records: How many records, or messages.
        reached: How far their source was read, or their numbers.
        overtaken: Whether somebody else has written in between.
    """

    records: int
    reached: R
    overtaken: bool


class AccountStore(ABC, Generic[T, R]):
    """Where an account's tallies lie. An implementation takes one file."""

    @abstractmethod
    def read(self) -> Durable[T, R]:
        """What is stored; the beginning if nothing is."""

    @abstractmethod
    def write(self, was: Durable[T, R], tallies: T, reached: R) -> Durable[T, R]:
        """Replace what was read or written last with these, in one step; the tallies given are left as they are.

        Raises:
            Conflict: Somebody else has written in between; nothing was changed.
        """

    def nothing(self, durable: T) -> T | None:
        """Tallies of nothing, if others may rewrite what is durable beneath what is pending: see `rebase`."""
        return None

    def going_on(self, durable: Durable[T, R], live: T) -> T:
        """What is live after a commit: what was, which may know more than what is durable of it."""
        return live


class Account(Generic[T, R]):
    """The tallies of one trial in one place.

    Args:
        store: Where they are durable.
        pace: When what is pending may become durable; at once if left out.
        lose: Called with what had to be given up.

    Attributes:
        durable: What is durable.
        live: That, and what was folded since.
        reached: How far the source of these was read.
        waiting: How long what is pending waits to be stored.
    """

    def __init__(
        self,
        store: AccountStore[T, R],
        pace: Pace | None = None,
        lose: Callable[[Lost[R]], None] = lambda lost: None,
    ) -> None:
        self._store = store
        self._pace = pace or Pace()
        self._lose = lose
        durable = store.read()
        self._begin(durable, durable.tallies.copy())

    def _begin(self, durable: Durable[T, R], live: T) -> None:
        """Nothing is pending. This cannot fail: older tallies under a newer version would overwrite what is safe."""
        self.durable, self.live, self.reached = durable, live, durable.reached
        self.live.newcomers = self.durable.tallies.newcomers = Newcomers()
        self.waiting = Waiting(live.plan.privacy, self._pace)
        self._apart = self._store.nothing(live)

    def fall_back(self) -> None:
        """Give up what is pending: start again from what is durable."""
        durable = self._store.read()
        if self.pending:
            self._lose(Lost(self.pending, self.reached, durable.version != self.durable.version))
        self._begin(durable, durable.tallies.copy())

    def rebase(self) -> bool:
        """Put what is pending upon what another program has made of the durable records, if it has done no more.

        So another server may fix the coefficients of all: what is pending was in no fit, and is mapped with these. A
        commit of this program that was taken though it seemed to fail has more records.
        """
        if self._apart is None:
            return False
        durable = self._store.read()
        if (durable.version, durable.tallies.n) != (self.durable.version + 1, self.durable.tallies.n):
            return False
        self.durable, self.live, self._apart = durable, durable.tallies.merge(self._apart), None
        return True

    def copy(self) -> Self:
        """The same, to go back to."""
        found = copy(self)
        found.live, found.reached, found.waiting = self.live.copy(), copy(self.reached), copy(self.waiting)
        found._apart = None if self._apart is None else self._apart.copy()
        return found

    @property
    def pending(self) -> int:
        """Records, or messages, that are not durable yet."""
        return self.live.newcomers.records

    def take(self, fold: Callable[[T], F], *, several: bool = False) -> F:
        """Fold one batch into the live tallies, or several; if that fails, they are as the fold has left them."""
        before, self.live.newcomers = self.live.newcomers, Newcomers()
        try:
            folded = fold(self.live)
        finally:
            own, self.live.newcomers = self.live.newcomers, before
            self.came(own, several=several)
        if self._apart is not None:
            fold(self._apart)  # which refuses nothing that the live tallies have taken
        return folded

    def came(self, own: Newcomers, *, several: bool = False) -> None:
        """Count the newcomers of a batch, or of several."""
        self.live.newcomers = (self.live.newcomers + own).within(self.live.plan.privacy)
        self.waiting.came(Newcomers() if several else own, self.live.newcomers)

    def is_due(self, *, on_tick: bool = True) -> bool:
        """Whether the gate lets what is pending become durable."""
        return self.waiting.is_over(self.live.newcomers, on_tick=on_tick)

    def commit(self) -> None:
        """Make what is pending durable, with how far its source was read.

        Raises:
            Conflict: Somebody else has written in between; what was pending is given up.
        """
        try:
            durable = self._store.write(self.durable, self.live, self.reached)
        except Conflict:
            if not self.rebase():
                self.fall_back()
                raise
            durable = self._written(self.live, self.reached)
        self._begin(durable, self._store.going_on(durable, self.live))

    def bring(self, more: T, reached: R) -> None:
        """Make durable at once what is of a cohort by itself; what is pending stays pending.

        Raises:
            Conflict: Somebody else has written in between; what was pending is given up.
        """
        live = self.live.merge(more)
        self.durable = self._written(self.durable.tallies.merge(more), reached)
        self.live = live

    def _written(self, tallies: T, reached: R) -> Durable[T, R]:
        try:
            return self._store.write(self.durable, tallies, reached)
        except Conflict:
            self.fall_back()
            raise
