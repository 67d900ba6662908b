"""One server's shard of a trial of records in the database, and how all servers' moments become sums.

A commit writes the tallies and the producers' last sequences in one transaction, so a batch is in both or in neither,
and a producer that resends what was not durable is counted exactly once. The moments of all servers become sums, with
coefficients that are fixed together, once there are records enough.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from foldaway.account.account import AccountStore, Durable
from foldaway.inference.adjusting import LEAST_PER_COLUMN
from foldaway.inference.fixing import start_of
from foldaway.plan import Plan
from foldaway.service.collecting.numbers import Sequences
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store
from foldaway.trial import Trial

FIXED_AT = 2_000
"""Records of all servers together at which a trial's coefficients are fixed and its moments destroyed."""


class RecordStore(AccountStore[Trial, Sequences]):
    """A trial's shard on this server.

    Attributes:
        stored: When this server last stored the tallies, in seconds since 1970.
    """

    def __init__(self, store: Store, trial: str, shard: str) -> None:
        self._shards = store.shards
        self._shard = shard
        self._plan = Plan.loads(store.trial(trial).plan)
        self._key = store.trial_key(trial) if self._plan.keyed else None
        self.stored: float | None = None

    def read(self) -> Durable[Trial, Sequences]:
        """What is durable, and the numbers of nothing pending."""
        row = self._shards.one(self._plan.name, self._shard)
        found = self._empty() if row.state is None else Trial.loads(row.state, self._plan, key=self._key)
        return Durable(found, self._numbers(), row.version)

    def write(self, was: Durable[Trial, Sequences], tallies: Trial, reached: Sequences) -> Durable[Trial, Sequences]:
        """Write the tallies and the producers' last sequences, in one transaction."""
        version = self._shards.commit(
            self._plan.name,
            self._shard,
            version=was.version,
            n=tallies.n,
            state=tallies.stored(),  # encrypted there, and rich only until there are records enough
            sequences=reached.moves,
        )
        self.stored = time.time()
        return Durable(tallies.copy(), self._numbers(), version)

    def nothing(self, durable: Trial) -> Trial | None:
        """Tallies of nothing as long as these are moments, of which another server may make sums."""
        return self._empty() if durable.unfixed else None

    def _empty(self) -> Trial:
        return Trial(self._plan, key=self._key)

    def _numbers(self) -> Sequences:
        return Sequences(self._shards, self._plan.name)

    def fix_if_enough(self) -> bool:
        """Let all servers' moments become sums, if there are records enough; whether they have.

        A plan with very many columns needs more than `FIXED_AT`.
        """
        records = sum(row.n for row in self._shards.counts(self._plan.name))
        if records < max(FIXED_AT, LEAST_PER_COLUMN * len(self._plan.predictors)):
            return False
        self._shards.rewrite(self._plan.name, partial(_fixed, self._plan))
        return True


def _fixed(plan: Plan, shards: Sequence[ShardRow]) -> dict[str, bytes]:
    """The states of shards that hold moments, as sums: with the coefficients that others have, or all together give."""
    start = start_of(merged(plan, shards).tallies)
    states = {}
    for row in shards:
        trial = None if row.state is None else Trial.loads(row.state, plan)
        if trial is not None and trial.unfixed:
            trial.fix(start)
            states[row.shard] = trial.exchanged()
    return states


def merged(plan: Plan, shards: Sequence[ShardRow]) -> Trial:
    """The trial of all servers together, as far as it is durable."""
    whole = Trial(plan)
    for row in shards:
        if row.state is not None:
            whole = whole.merge(Trial.loads(row.state, plan))
    return whole
