"""The trials whose records come to this server: batches to their collectors, effects from what is durable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from foldaway.effects import Effects
from foldaway.errors import Conflict, FoldawayError, IngestError, TooEarly, TrialClosed
from foldaway.federated.coordinator.closing import would_be_without_effects
from foldaway.forgetting.decoys import Decoys
from foldaway.plan import Plan
from foldaway.service.collecting.collector import Answers, Collector, Receipt
from foldaway.service.collecting.history import Historian
from foldaway.service.database.shard_table import left_out, versions
from foldaway.service.database.store import Store
from foldaway.service.database.trial_table import TrialRow
from foldaway.sources.formats.body import Limits, decode, wipe

_ATTEMPTS = 5


class RecordAnswer(NamedTuple):
    """What there is to say about such a trial: its effects, if any, and the records in them or left out."""

    effects: Effects | None
    records: int
    left_out: int


class RecordTrials:
    """The trials that take records, as one server collects them. Not for several threads at once.

    Attributes:
        history: How their estimates have moved.
        forgotten: When this server last wiped a batch of a trial that it had folded, in seconds since 1970.
    """

    def __init__(self, store: Store, shard: str, limits: Limits) -> None:
        self._store = store
        self._shard = shard
        self._limits = limits
        self._collectors: dict[str, Collector] = {}
        self._decoys = Decoys()
        self._answers = Answers()
        self.history = Historian(store, self._answers)
        self.forgotten: dict[str, float] = {}

    def receive(
        self,
        name: str,
        body: bytearray,
        media_type: str,
        encoding: str | None,
        producer: str | None,
        sequence: int | None,
    ) -> Receipt:
        """Decode, check and fold a batch; its body is wiped, whatever becomes of it."""
        try:
            collector = self.collector(name)
            batch = decode(body, media_type, encoding, collector.plan, self._limits)
            try:
                receipt = collector.receive(batch, producer, sequence)
            finally:
                self._decoys.add(collector.plan, batch.records.num_rows)
                batch.wipe()
        finally:
            wipe(body)
        self.forgotten[name] = time.time()
        return receipt

    def fold_decoys(self) -> None:
        """Overwrite what the last batches have left in the linear algebra's working memory."""
        self._decoys.fold()

    def so_far(self, plan: Plan) -> RecordAnswer:
        """The effects, from durable states only: two answers differ by a cohort of records or not at all.

        Raises:
            TooEarly: An arm has too few records.
        """
        shards = self._store.shards.all(plan.name)
        records, effects = self._answers.of(plan, shards)
        return RecordAnswer(effects, records, left_out(shards))

    def close(self, row: TrialRow, final: Callable[[RecordAnswer], str], *, without_effects: bool) -> TrialRow:
        """End a trial: no more records, its key destroyed, its effects final.

        Raises:
            IngestError: It would end without effects, and that is not wanted.
        """
        for attempt in range(_ATTEMPTS):
            if row.final is not None:
                break
            try:
                return self._close(row, final, without_effects=without_effects)
            except (Conflict, TrialClosed):  # another server has committed, or closed it, in between
                if attempt == _ATTEMPTS - 1:
                    raise
                row = self._store.trial(row.name)
        return self._store.close_trial(row.name, row.final or "")  # once more: the key may have outlived a crash

    def _close(self, row: TrialRow, final: Callable[[RecordAnswer], str], *, without_effects: bool) -> TrialRow:
        collector = self.collector(row.name)
        pending = collector.finish()
        if not pending:
            collector.fix()  # the start is destroyed at the latest now
        shards = self._store.shards.all(row.name)
        effects: Effects | None = None
        try:
            _, effects = self._answers.of(collector.plan, shards)
        except TooEarly:
            if not without_effects:
                privacy = collector.plan.privacy
                least = f"every arm needs {privacy.smallest_cell:,} durable records (the plan's smallest_cell)"
                few = f"{pending:,} records wait here for others to make up a cohort of {privacy.cohort:,}"
                raise would_be_without_effects(row.name, f"{least}. {few}") from None
        answer = RecordAnswer(effects, sum(shard.n for shard in shards), left_out(shards) + pending)
        # A commit of another server after this look at its shard would be missing from the final answer.
        closed = self._store.close_trial(row.name, final(answer), versions(shards))
        self._let_go(row.name)
        return closed

    def tick(self) -> list[FoldawayError]:
        """Commit what has waited for as long as its plan allows, and take points of each trial's course.

        Trials that were closed elsewhere are let go of.
        """
        faults = []
        for name, collector in list(self._collectors.items()):
            try:
                if self._store.trial(name).status != "open":
                    self._let_go(name)
                else:
                    collector.commit_if_due()
                    self.history.look(name, collector.plan, collector.durable)
            except FoldawayError as error:
                faults.append(error)
        return faults

    def _let_go(self, name: str) -> None:
        """Once a trial is closed: what no cohort came together for is left out."""
        self._collectors[name].leave_out_pending()
        del self._collectors[name]
        self._answers.drop(name)

    def stop(self) -> None:
        """Commit what the cohort allows; the rest is still with its producers."""
        for collector in self._collectors.values():
            try:
                collector.commit_if_due()
            except FoldawayError:
                continue

    def pending(self) -> int:
        """Records of all trials that wait for their cohort."""
        return sum(collector.pending for collector in self._collectors.values())

    def pending_of(self, name: str) -> int:
        """Records of one trial that wait for their cohort."""
        return self._collectors[name].pending if name in self._collectors else 0

    def collector(self, name: str) -> Collector:
        """The trial's shard on this server."""
        if name not in self._collectors:
            if Plan.loads(self._store.trial(name).plan).federated is not None:
                raise IngestError(409, "the records of this trial stay on its devices, which send reports instead.")
            self._collectors[name] = Collector(self._store, name, self._shard)
        return self._collectors[name]
