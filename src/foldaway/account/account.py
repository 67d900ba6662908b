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


class Account(Generic[T, R]):
    """The tallies of one trial in one place.

    Args:
        store: Where they are durable.
        pace: When what is pending may become durable; at once if left out.

    Attributes:
        durable: What is durable.
        live: That, and what was folded since.
        reached: How far the source of these was read.
        waiting: How long what is pending waits to be stored.
    """

    def __init__(self, store: AccountStore[T, R], pace: Pace | None = None) -> None:
        self._store = store
        self._pace = pace or Pace()
        self.fall_back()

    def fall_back(self) -> None:
        """Give up what is pending: start again from what is durable."""
        durable = self._store.read()
        # All at once, when nothing can fail any more: older tallies under a newer version would overwrite what is safe.
        self.durable, self.live, self.reached = durable, durable.tallies.copy(), durable.reached
        self._wait()

    def _wait(self) -> None:
        self.live.newcomers = Newcomers()
        self.waiting = Waiting(self.live.plan.privacy, self._pace)

    def copy(self) -> Self:
        """The same, to go back to."""
        found = copy(self)
        found.live, found.reached, found.waiting = self.live.copy(), copy(self.reached), copy(self.waiting)
        return found

    @property
    def pending(self) -> int:
        """Records, or messages, that are not durable yet."""
        return self.live.newcomers.records

    def take(self, fold: Callable[[T], F], *, several: bool = False) -> F:
        """Fold one batch into the live tallies, or several; if that fails, they are as the fold has left them."""
        before, self.live.newcomers = self.live.newcomers, Newcomers()
        try:
            return fold(self.live)
        finally:
            own = self.live.newcomers
            self.live.newcomers = (before + own).within(self.live.plan.privacy)
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
            self.fall_back()
            raise
        self.durable, self.reached = durable, durable.reached
        self._wait()
