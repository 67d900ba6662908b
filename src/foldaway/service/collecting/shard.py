"""One server's shard of a trial: how what is pending becomes durable, a cohort at a time, or is given up.

A commit writes the live tallies and the producers' last sequences in one transaction, so a batch is in both or in
neither, and a producer that resends what was not durable is counted exactly once. The moments of all servers become
sums, with coefficients that are fixed together, once there are records enough.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Self

import msgspec
import numpy as np

from foldaway.account.pace import Pace
from foldaway.errors import Conflict, FoldawayError
from foldaway.inference.adjusting import LEAST_PER_COLUMN
from foldaway.inference.fixing import start_of
from foldaway.plan import Plan
from foldaway.service.collecting.live_tallies import LiveTallies
from foldaway.service.collecting.numbers import Sequences
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store
from foldaway.trial import Trial

FIXED_AT = 2_000
"""Records of all servers together at which a trial's coefficients are fixed and its moments destroyed."""


_TAKEN = "another program wrote this shard in between: if a second server has this name, give each its own (--shard)."


class GivenUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records that were folded but never became durable, because the server stops or another one took over.

    Attributes:
        records: How many there are.
        unnumbered: How many of these came without a sequence: nobody will send them again.
        producers: Who sent the others, and still holds them.
        reason: What is wrong, if something is.
    """

    trial: str
    records: int
    unnumbered: int
    producers: list[str]
    reason: str = ""


class Shard:
    """A trial's shard on this server.

    Attributes:
        live: The tallies: what the database holds of this shard, and the batches folded since.
        sequences: The numbers of these batches.
        stored: When this server last stored the tallies, in seconds since 1970.
    """

    def __init__(self, store: Store, trial: str, name: str, pace: Pace | None = None) -> None:
        self._store = store
        self._name = name
        self._pace = pace or Pace()
        self.stored: float | None = None
        self._given_up: list[GivenUp] = []
        self.plan = Plan.loads(store.trial(trial).plan)
        self._reload()

    def _reload(self) -> None:
        """Start from what is durable."""
        row = self._row()
        live = LiveTallies(self._trial(row.state), self._trial(None), row.version, self._pace)
        # All at once, when nothing can fail any more: older tallies under a newer version would overwrite what is safe.
        self.live, self.sequences = live, Sequences(self._store.shards, self.plan.name)

    def _row(self) -> ShardRow:
        return self._store.shards.one(self.plan.name, self._name)

    def _trial(self, state: bytes | None) -> Trial:
        key = self._store.trial_key(self.plan.name) if self.plan.keyed else None
        return Trial(self.plan, key=key) if state is None else Trial.loads(state, self.plan, key=key)

    def copy(self) -> Self:
        """The same, to go back to."""
        found = copy(self)
        found.live, found.sequences = self.live.copy(), self.sequences.copy()
        return found

    def give_up(self) -> None:
        """Start again from what is durable; batches folded since are with their producers, if they have a number."""
        given_up, version = self.pending_from(), self.live.version
        self._reload()
        reason = "" if self.live.version == version else _TAKEN
        self._given_up += [msgspec.structs.replace(each, reason=reason) for each in given_up]

    def pending_from(self) -> list[GivenUp]:
        """Who sent the records that are pending, if there are any."""
        pending, unnumbered, producers = self.live.pending, self.sequences.unnumbered, sorted(self.sequences.moves)
        return [GivenUp(self.plan.name, pending, unnumbered, producers)] if pending else []

    def given_up(self) -> list[GivenUp]:
        """What had to be given up since this was last asked."""
        found, self._given_up = self._given_up, []
        return found

    def commit_if_due(self, *, on_tick: bool = True) -> None:
        """Commit if a cohort has come together, and has waited long enough."""
        if self.live.waiting.is_over(self.live.trial.newcomers, on_tick=on_tick):
            self.commit()

    def commit(self) -> None:
        """Make the live tallies durable, with the producers' sequences, in one transaction."""
        try:
            try:
                version = self._write()
            except Conflict:
                if not self._mapped():
                    raise
                version = self._write()
        except Conflict:
            # Another server has taken batches of the same producers: what is pending here will come again.
            self.give_up()
            raise
        self.live.wrote(version)
        self.stored = time.time()
        self.sequences = Sequences(self._store.shards, self.plan.name)

    def _write(self) -> int:
        return self._store.shards.commit(
            self.plan.name,
            self._name,
            version=self.live.version,
            n=self.live.trial.n,
            state=self.live.trial.stored(),  # encrypted there, and rich only until there are records enough
            sequences=self.sequences.moves,
        )

    def _mapped(self) -> bool:
        """Whether another server has fixed the coefficients in between, and what is pending is now mapped with them.

        That is one new version of the same records, as sums. A commit of this server that was taken though it seemed
        to fail has more records.
        """
        row = self._row()
        if not self.live.unfixed or (row.version, row.n) != (self.live.version + 1, self.live.durable):
            return False
        durable = self._trial(row.state)
        if durable.unfixed:
            return False
        self.live.map_onto(durable, row.version)
        return True

    def fix_if_due(self) -> None:
        """Let all servers' moments become sums, once there are records enough; whatever fails is tried again later.

        A plan with very many columns needs more than `FIXED_AT`.
        """
        if not self.live.unfixed or self.live.pending:
            return
        try:
            records = sum(row.n for row in self._store.shards.counts(self.plan.name))
            if records >= max(FIXED_AT, LEAST_PER_COLUMN * len(self.plan.predictors)):
                self._store.shards.rewrite(self.plan.name, partial(_fixed, self.plan))
                self._reload()
        except (FoldawayError, np.linalg.LinAlgError):
            return  # what was acknowledged is durable, as moments still

    def whole(self, shards: Sequence[ShardRow]) -> Trial:
        """The trial of all servers together, with what is pending here.

        Raises:
            Conflict: What is pending here is no longer to be counted: another server has taken some of it, or this
                server's shard is not the one that it was built upon. It must come again.
        """
        newer = sum(row.version for row in shards if row.shard == self._name) - self.live.version
        if self.sequences.overtaken() or not (newer == 0 or (newer == 1 and self._mapped())):
            self.give_up()
            raise Conflict("another server has taken the same batches, or written this one's state, in between.")
        return merged(self.plan, [row for row in shards if row.shard != self._name]).merge(self.live.trial)

    def leave_out_pending(self) -> None:
        """Once the trial was closed elsewhere: give up the records that no cohort came together for, and count them."""
        if self.live.pending:
            self._store.shards.leave_out(self.plan.name, self._name, self.live.pending)
        # Without asking the database, which might fail: they must not be counted twice.
        self.live = LiveTallies(Trial(self.plan), Trial(self.plan), self.live.version)
        self.sequences = Sequences(self._store.shards, self.plan.name)


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
