"""The trials whose records come to this server: batches to their collectors, effects from what is durable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from foldaway.auditing.audit import audit
from foldaway.effects import Effects
from foldaway.errors import Conflict, FoldawayError, IngestError, TooEarly, TrialClosed, many
from foldaway.federated.coordinator.closing import would_be_without_effects
from foldaway.forgetting.decoys import Decoys
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import too_early
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Candidate, Told
from foldaway.service.collecting.collector import SMALL, Arrival, Collector, Receipt
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.shard import GivenUp, merged
from foldaway.service.database.outages import again_after
from foldaway.service.database.shard_table import ShardRow, left_out, versions, write_sequences
from foldaway.service.database.store import Store
from foldaway.service.database.trial_table import TrialRow
from foldaway.sources.formats.body import JSON, NDJSON, Decoded, Limits, decode, decode_together, wipe
from foldaway.trial import Trial, quiet_effects
from foldaway.trial.units import census_of

_SMALL_BODY = 2**12


class Sent(NamedTuple):
    """What was said about a body: how it is written, and its numbers, if it has any."""

    media_type: str
    encoding: str | None = None
    numbers: Numbers | None = None


class RecordTrials:
    """The trials that take records, as one server collects them. Not for several threads at once.

    Attributes:
        forgotten: When this server last wiped a batch of a trial that it had folded, in seconds since 1970.
    """

    def __init__(self, store: Store, shard: str, limits: Limits, answers: Answers) -> None:
        self._store = store
        self._shard = shard
        self._limits = limits
        self._collectors: dict[str, Collector] = {}
        self._decoys = Decoys()
        self._answers = answers
        self.forgotten: dict[str, float] = {}

    def receive(self, name: str, lot: Sequence[tuple[bytearray, Sent]]) -> list[Receipt | FoldawayError]:
        """Decode, check and fold batches that have come together; their bodies are wiped, whatever becomes of them."""
        decoded: dict[int, Decoded] = {}
        outcomes: dict[int, Receipt | FoldawayError] = {}
        try:
            collector = self.collector(name)
            plan = collector.shard.plan
            if len(lot) > 1:
                small = {i: (body, sent.media_type) for i, (body, sent) in enumerate(lot) if _is_small(body, sent)}
                decoded = decode_together(small, plan, SMALL)
            for i, (body, sent) in enumerate(lot):
                if i in decoded:
                    continue
                try:
                    decoded[i] = decode(body, sent.media_type, sent.encoding, plan, self._limits)
                except FoldawayError as error:
                    outcomes[i] = error
            order = sorted(decoded)  # that in which they came, or the second of a producer's might be first
            if order:
                arrivals = [Arrival(decoded[i], lot[i][1].numbers) for i in order]
                outcomes.update(zip(order, collector.receive(arrivals), strict=True))
        finally:
            if decoded:  # they may have been folded as one
                self._decoys.add(plan, sum(batch.records.num_rows for batch in decoded.values()))
            for batch in decoded.values():
                batch.wipe()
            for body, _ in lot:
                wipe(body)
        self.forgotten[name] = time.time()
        return [outcomes[i] for i in range(len(lot))]

    def fold_decoys(self) -> None:
        """Overwrite what the last batches have left in the linear algebra's working memory."""
        self._decoys.fold()

    def so_far(self, plan: Plan) -> Answer:
        """What is told of a trial now.

        Raises:
            TooEarly: Too few stand behind it as yet.
        """
        shards = self._store.shards.all(plan.name)
        told = self._told(plan, shards)
        if told is None:
            raise too_early(plan.privacy)
        return Answer.of(plan, told.effects, round_count(told.records), left_out(shards))

    def _told(self, plan: Plan, shards: Sequence[ShardRow], *, at_leisure: bool = False) -> Told | None:
        seen = versions(shards)
        return self._answers.current(plan, seen, lambda: _candidate(merged(plan, shards)), at_leisure=at_leisure)

    def exactly(self, plan: Plan) -> Answer:
        """The effects of all that is durable, not rounded, for whoever runs the trial."""
        shards = self._store.shards.all(plan.name)
        trial = merged(plan, shards)
        if not trial.n:
            first = many(plan.privacy.cohort, "unit")
            raise TooEarly(
                f"there are no effects yet, not even exact ones: the server stores nothing until {first} (the plan's "
                "`cohort`) have come."
            )
        return Answer.of(plan, quiet_effects(trial), trial.n, left_out(shards))

    @again_after(Conflict, TrialClosed)  # another server has committed, or closed it
    def close(self, name: str, *, without_effects: bool) -> tuple[TrialRow, Effects | None]:
        """End a trial: no more records, its key destroyed, its effects final.

        Returns:
            The closed trial; and, from the call that closed it, its effects as they are before rounding.

        Raises:
            IngestError: It would end without effects, and that is not wanted.
        """
        row = self._store.trial(name)
        if row.final is not None:  # once more: the key may have outlived a crash
            return self._store.close_trial(name, row.final), None
        shard, shards = self.collector(name).shard, self._store.shards.all(name)
        plan, whole = shard.plan, shard.whole(shards)
        candidate = _candidate(whole)  # before a release, while units can still be counted
        audited = audit(plan, whole.tallies)
        if plan.release is not None and whole.n:
            whole.release(everywhere=False)  # drawn once: what is told is stored in the transaction that closes
        told, unless_told = self._answers.final(plan, candidate)
        if told is None and not without_effects:
            raise would_be_without_effects(name, str(too_early(plan.privacy)).rstrip("."))
        effects = None if told is None else told.effects
        # A release tells no exact count: what is left of the whole is noisy.
        counted = whole.n if told is None or plan.release is not None else told.records
        lost = round_count(left_out(shards) + whole.n - counted)
        answer = Answer.of(plan, effects, round_count(counted), lost, final=True)
        moved = partial(write_sequences, trial=name, sequences=dict(shard.sequences.moves))
        closed = self._answers.end(answer, audited, shards, [moved, unless_told])
        del self._collectors[name]
        ours = closed.final == answer.dumps()  # another server may have been faster
        return closed, quiet_effects(whole) if whole.n and ours else None

    def tick(self) -> list[FoldawayError]:
        """Commit what could not be committed before, and tell what is due; let go of trials closed elsewhere."""
        faults = []
        for name, collector in list(self._collectors.items()):
            try:
                if self._store.trial(name).status != "open":
                    collector.shard.leave_out_pending()  # what no cohort came together for
                    del self._collectors[name]
                    self._answers.drop(name)
                else:
                    collector.shard.commit_if_due()
                    with suppress(TooEarly):
                        self._told(collector.shard.plan, self._store.shards.all(name), at_leisure=True)
            except FoldawayError as error:
                faults.append(error)
        return faults

    def stop(self) -> list[GivenUp]:
        """Commit what the cohort allows; the rest is given up here, and still with its producers if it has a number."""
        for collector in self._collectors.values():
            with suppress(FoldawayError):
                collector.shard.commit_if_due()
        pending = [each for collector in self._collectors.values() for each in collector.shard.pending_from()]
        return self.given_up() + pending

    def given_up(self) -> list[GivenUp]:
        """What had to be given up since this was last asked, because another server has taken over."""
        return [each for collector in self._collectors.values() for each in collector.shard.given_up()]

    def pending(self, name: str | None = None) -> int:
        """Records of all trials, or of one, that wait for their cohort."""
        return sum(collector.shard.live.pending for of, collector in self._collectors.items() if name in (None, of))

    def collector(self, name: str) -> Collector:
        """The trial's shard on this server."""
        if name not in self._collectors:
            if Plan.loads(self._store.trial(name).plan).federated is not None:
                raise IngestError(409, "the records of this trial stay on its devices, which send reports instead.")
            self._collectors[name] = Collector(self._store, name, self._shard)
        return self._collectors[name]


def _is_small(body: bytearray, sent: Sent) -> bool:
    return sent.media_type in (JSON, NDJSON) and sent.encoding is None and len(body) <= _SMALL_BODY


def _candidate(trial: Trial) -> Candidate:
    return Candidate(trial.n, census_of(trial.plan, trial.tallies), partial(quiet_effects, trial, rounded=True))
