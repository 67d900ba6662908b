"""The trials whose records come to this server: batches to their collectors, effects from what is durable."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from foldaway.auditing.audit import audit
from foldaway.effects import Effects
from foldaway.effects.door import TOLD
from foldaway.effects.looks import told_at_the_end
from foldaway.effects.read_flow import at_the_end
from foldaway.errors import Conflict, FoldawayError, IngestError, TooEarly, TrialEnded, UnknownTrial, Unreleased, many
from foldaway.federated.coordinator.ending import would_be_without_effects
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import too_early
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Candidate, Shown, why_none
from foldaway.service.collecting.looking import last_looks, looks_of
from foldaway.service.collecting.numbers import Numbers, Producers
from foldaway.service.collecting.record_inbox import SMALL, Arrival, Claim, GivenUp, Receipt, RecordInbox
from foldaway.service.collecting.record_store import merged
from foldaway.service.database.outages import again_after
from foldaway.service.database.seals import Superseded
from foldaway.service.database.shard_table import ShardRow, left_out, versions, write_sequences
from foldaway.service.database.store import Store
from foldaway.service.database.trial_table import TrialRow
from foldaway.sources.formats.body import JSON, NDJSON, Decoded, Limits, decode, decode_together, wipe
from foldaway.trial import Trial

# Bytes of a body that is taken in together with others, if it is text: a larger one, or one that may be packed, can
# take all the memory that there is for a batch.
_SMALL_BODY = 2**16


class Sent(NamedTuple):
    """What was said about a body: how it is written, and its numbers, if it has any, under which token."""

    media_type: str
    encoding: str | None = None
    numbers: Numbers | None = None
    token: str | None = None


class RecordTrials:
    """The trials that take records, as one server collects them. Not for several threads at once.

    Attributes:
        uncounted: Trials that are released with noise: how many records they have is in no metric.
        forgotten: When this server last stored tallies of a trial, whose batches it had wiped by then, in seconds since
            1970.
    """

    def __init__(self, store: Store, shard: str, limits: Limits, answers: Answers, producers: Producers) -> None:
        self._store = store
        self._producers = producers
        self._shard = shard
        self._limits = limits
        self._collectors: dict[str, RecordInbox] = {}
        self._answers = answers
        self.uncounted = set[str]()
        self.forgotten: dict[str, float] = {}

    def receive(self, name: str, lot: Sequence[tuple[bytearray, Sent]]) -> list[Receipt | FoldawayError]:
        """Decode, check and fold batches that have come together; their bodies are wiped, whatever becomes of them."""
        decoded: dict[int, Decoded] = {}
        outcomes: dict[int, Receipt | FoldawayError] = {}
        try:
            collector = self.collector(name)
            plan = collector.plan
            if len(lot) > 1:
                small = {i: (body, sent.media_type) for i, (body, sent) in enumerate(lot)}
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
                arrivals = [Arrival(decoded[i], lot[i][1].numbers, self._claim(name, lot[i][1])) for i in order]
                outcomes.update(zip(order, collector.receive(arrivals), strict=True))
        finally:
            for batch in decoded.values():
                batch.wipe()
            for body, _ in lot:
                wipe(body)
        self._note_stored(name, collector)
        return [outcomes[i] for i in range(len(lot))]

    def _claim(self, name: str, sent: Sent) -> Claim | None:
        """What makes a producer's name its token's, once a batch of it is good."""
        if sent.numbers is None or sent.token is None:
            return None
        whose = (name, sent.numbers.producer, sent.token)
        return None if self._producers.known(*whose) else partial(self._producers.claim, *whose)

    def _note_stored(self, name: str, collector: RecordInbox) -> None:
        if collector.stored is not None:
            self.forgotten[name] = collector.stored

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

    def _told(self, plan: Plan, shards: Sequence[ShardRow], *, on_tick: bool = False) -> Shown | None:
        return self._answers.current(plan, versions(shards), lambda: self._candidate(plan, shards), on_tick=on_tick)

    def _candidate(self, plan: Plan, shards: Sequence[ShardRow]) -> Candidate:
        """What could be told now, after the planned look that is due."""
        trial = merged(plan, shards)
        trial.chronicle.looks = looks_of(self._store, plan, trial.read)
        return _candidate(trial)

    def exactly(self, plan: Plan) -> Answer:
        """The effects of all that is durable, not rounded, for whoever runs the trial."""
        if plan.release is not None:
            raise Unreleased()
        shards = self._store.shards.all(plan.name)
        trial = merged(plan, shards)
        if not trial.n:
            first = many(plan.privacy.cohort, "unit")
            raise TooEarly(
                f"there are no effects yet, not even exact ones: the server stores nothing until {first} (the plan's "
                "`cohort`) have come."
            )
        trial.chronicle.looks = looks_of(self._store, plan, trial.read)
        return Answer.of(plan, trial.read(), trial.n, left_out(shards))

    @again_after(Conflict, TrialEnded)  # another server has committed, or ended it
    def end(self, name: str, *, without_effects: bool) -> tuple[TrialRow, Effects | None]:
        """End a trial: no more records, its key destroyed, its effects final.

        Returns:
            The trial that has ended; and, from the call that ended it, its effects as they are before rounding.

        Raises:
            IngestError: Effects would be withheld, and that is not wanted.
        """
        row = self._store.trial(name)
        if row.final is not None:  # once more: the key may have outlived a crash
            return self._store.end_trial(name, row.final), None
        try:
            collector, shards = self.collector(name), self._store.shards.all(name)
        except Superseded:
            if not without_effects:
                raise
            return self._close_lost(Plan.loads(row.plan)), None
        plan, live = collector.plan, collector.live(shards)
        whole = merged(plan, [row for row in shards if row.shard != self._shard]).merge(live)
        audited = audit(plan, whole.tallies) if plan.release is None else None
        if plan.release is not None:  # however few have come, since a refusal would depend on exact counts
            whole.conclude()  # noise is drawn once: what is told is stored in the transaction that ends
        whole.chronicle.looks, unless_looked = last_looks(self._store, plan, whole.read)
        told, unless_told = self._answers.final(plan, _candidate(whole))
        if not without_effects and (why := why_none(plan, told)) is not None:
            raise would_be_without_effects(name, why.rstrip("."))
        effects = None if told is None else replace(told.effects, looks=told_at_the_end(told.effects, whole.looks))
        if effects is not None and effects.flow is not None and told is not None and told.records == whole.n:
            effects = at_the_end(effects, whole.read())
        counted = whole.n if told is None else told.records
        lost = None if plan.release is not None else round_count(left_out(shards) + whole.n - counted)
        answer = Answer.of(plan, effects, round_count(counted), lost, final=True)
        moved = partial(write_sequences, trial=name, sequences=dict(collector.account.reached.moves))
        ended = self._answers.end(answer, audited, shards, [moved, unless_told, unless_looked])
        del self._collectors[name]
        ours = ended.final == answer.dumps()  # another server may have been faster
        return ended, whole.read() if whole.n and ours else None

    def _close_lost(self, plan: Plan) -> TrialRow:
        """End a trial whose tallies nobody can open any more: all of its records are left out."""
        shards = self._store.shards.counts(plan.name)
        lost = round_count(left_out(shards) + sum(shard.n for shard in shards))
        answer = Answer.of(plan, None, 0, lost, final=True)
        return self._answers.end(answer, audit(plan, Trial(plan).tallies), shards, [])

    @property
    def names(self) -> list[str]:
        """The trials of which something is in memory."""
        return list(self._collectors)

    def tick(self, name: str) -> list[FoldawayError]:
        """Commit what has waited long enough, and tell what is due; let go of a trial that ended elsewhere."""
        collector = self._collectors.get(name)
        if collector is None:  # it ended just now
            return []
        try:
            if self._store.trial(name).status != "open":
                collector.leave_out_pending()
                self._let_go(name)
            else:
                collector.commit_if_due()
                self._note_stored(name, collector)
                with suppress(TooEarly, TrialEnded):
                    self._told(collector.plan, self._store.shards.all(name), on_tick=True)
        except UnknownTrial:  # it ended and removed elsewhere
            self._let_go(name)
        except FoldawayError as error:
            return [error]
        return []

    def _let_go(self, name: str) -> None:
        del self._collectors[name]
        self._answers.drop(name)

    def stop(self) -> list[GivenUp]:
        """Commit what the cohort allows; the rest is given up here, and still with its producers if it has a number."""
        for collector in self._collectors.values():
            with suppress(FoldawayError):
                collector.commit_if_due()
        return [each for collector in self._collectors.values() for each in collector.given_up_at_end()]

    def given_up(self) -> list[GivenUp]:
        """What had to be given up since this was last asked, because another server has taken over."""
        return [each for collector in self._collectors.values() for each in collector.given_up()]

    def pending(self, name: str | None = None) -> int:
        """Records of all trials, or of one, that wait for their cohort."""
        return sum(collector.pending for of, collector in self._collectors.items() if name in (None, of))

    def collector(self, name: str) -> RecordInbox:
        """The trial's shard on this server."""
        if name not in self._collectors:
            if Plan.loads(self._store.trial(name).plan).federated is not None:
                raise IngestError(409, "the records of this trial stay on its devices, which send reports instead.")
            collector = self._collectors[name] = RecordInbox(self._store, name, self._shard, self._answers.pace)
            if collector.plan.release is not None:
                self.uncounted.add(name)
        return self._collectors[name]


def is_small(body: bytearray, sent: Sent) -> bool:
    """Whether a body is taken in together with those of other senders."""
    return sent.media_type in (JSON, NDJSON) and sent.encoding is None and len(body) <= _SMALL_BODY


def _candidate(trial: Trial) -> Candidate:
    return Candidate(trial.n, trial.tallies.census(), partial(trial.read, TOLD))
