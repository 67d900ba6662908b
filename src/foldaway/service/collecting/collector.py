"""What one server collects of one trial, whatever comes in: nothing is half taken, and what is due is committed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic

from foldaway.account.account import Account, AccountStore, F, Lost, R, T
from foldaway.account.pace import Pace
from foldaway.errors import Conflict
from foldaway.plan import Plan
from foldaway.service.database.shard_table import ShardRow, ShardTable


class Collector(ABC, Generic[T, R]):
    """An account that is kept in the database, as this server's shard of a trial.

    Not for several threads at once: the server has one that folds.

    Attributes:
        account: What is durable and pending here.
        shard: Of which shard.
    """

    def __init__(self, place: AccountStore[T, R], shards: ShardTable, shard: str, pace: Pace | None) -> None:
        self._open = partial(Account[T, R], place, pace, self._lose)
        self.account = self._open()
        self.shards = shards
        self.shard = shard
        self._left_out = 0  # given up, and not yet counted as such in the database

    @property
    def plan(self) -> Plan:
        """The trial's plan."""
        return self.account.live.plan

    @property
    def pending(self) -> int:
        """Records, or messages, that wait for their cohort."""
        return self.account.pending

    def collect(self, take: Callable[[], F]) -> F:
        """Take something in, all of it or nothing, and commit if it holds a cohort.

        Raises:
            Conflict: Another server has taken some of the same; what was pending here must come again.
        """
        before = self.account.copy()
        try:
            outcome = take()
            self.commit_if_due(on_tick=False)
        except Conflict:
            raise  # with all that was pending
        except BaseException:
            # Not acknowledged: as if nothing had come. Should the database have taken it nevertheless, the version is
            # no longer ours, and the next commit is a Conflict.
            self.account = before
            raise
        return outcome

    def commit_if_due(self, *, on_tick: bool = True) -> None:
        """Commit if a cohort has come together, and has waited long enough."""
        if self.account.is_due(on_tick=on_tick):
            self.account.commit()

    def live(self, shards: Sequence[ShardRow]) -> T:
        """This server's tallies with what is pending, to be added to those of the other servers.

        Raises:
            Conflict: What is pending here is no longer to be counted: another server has taken some of it, or this
                server's shard is not the one that it was built upon. It must come again.
        """
        version = sum(row.version for row in shards if row.shard == self.shard)
        if self._is_overtaken() or not (version == self.account.durable.version or self.account.rebase()):
            self.account.fall_back()
            raise Conflict("another server has taken the same, or written this one's shard, in between.")
        return self.account.live

    def leave_out_pending(self) -> None:
        """Once the trial has moved on: give up what no cohort came together for, and count it."""
        count, account = self.pending, self._open()
        # Tallies and numbers together, or neither: none of what is given up may be in a later commit.
        self.account, self._left_out = account, self._left_out + count
        if self._left_out:
            self.shards.leave_out(self.plan.name, self.shard, self._left_out)
            self._left_out = 0

    def _lose(self, lost: Lost[R]) -> None:
        """What was pending was given up, and comes again from where it came."""
        return None

    @abstractmethod
    def _is_overtaken(self) -> bool:
        """Whether another server has made durable what is pending here."""
