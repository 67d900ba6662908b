"""What the server does, without HTTP: trials, batches, effects, tokens."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from foldaway.account.pace import Pace
from foldaway.effects import outlook
from foldaway.errors import EstimateError, FoldawayError, IngestError, TooEarly, TrialEnded
from foldaway.evidence.certificate import issue
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.inference.rounding import round_count
from foldaway.plan import Plan
from foldaway.report.page.kept import planned
from foldaway.report.page.page import effects_page
from foldaway.service.collecting.answers import Answer, Answers, History, Participation, Series
from foldaway.service.collecting.board import Board
from foldaway.service.collecting.device_endings import DeviceEndings
from foldaway.service.collecting.device_trials import DeviceTrials
from foldaway.service.collecting.numbers import Producers
from foldaway.service.collecting.pair import Pair
from foldaway.service.collecting.record_inbox import GivenUp
from foldaway.service.collecting.record_trials import RecordTrials
from foldaway.service.database.outages import again_after
from foldaway.service.database.shard_table import left_out
from foldaway.service.database.store import Store
from foldaway.service.database.trial_table import TrialRow
from foldaway.service.keys.tokens import Scope, Wanted
from foldaway.sources.formats.body import Limits

_ISSUED: tuple[Scope, ...] = ("ingest", "read")


class Created(msgspec.Struct, frozen=True):
    """A registered trial, and the tokens to use it with; they are told this once.

    Attributes:
        new: Whether this request has registered it; if not, the same plan was there, and only the tokens are new.
        ledger_head: The hash that stands for the trial's ledger so far: publish it elsewhere.
    """

    name: str
    fingerprint: str
    ingest_token: str
    read_token: str
    new: bool = True
    ledger_head: str = ""


class TrialStatus(msgspec.Struct, frozen=True):
    """How a trial stands, for those who may read its effects: those who send to it learn no counts.

    Of a plan with a `release`, ``records`` are null until the end, ``left_out`` and ``forgotten`` always: nothing
    that is told may depend on exact counts.

    Attributes:
        records: Durable records, of all servers, rounded; of a release, with its noise.
        left_out: Records given up at the end because no cohort came together for them; messages, where records stay
            on devices.
        forgotten: The hour in which this server last stored tallies, whose batches it had wiped by then: its beginning,
            in seconds since 1970; null if it has stored none since it started.
        federated: Of a trial whose records stay on devices, who takes part in it.
        exact_answers: How often an admin has asked for exact numbers.
        ledger_head: The hash that stands for the trial's ledger so far.
        team: The team that it belongs to, if to one.
    """

    name: str
    fingerprint: str
    status: str
    records: int | None
    cohort: int
    left_out: int | None
    created: float
    ended: float | None
    forgotten: float | None
    federated: Participation | None = None
    exact_answers: int = 0
    ledger_head: str = ""
    team: str | None = None


class Ahead(msgspec.Struct, frozen=True):
    """What a trial can still find: it follows from the effects that were told, and their history.

    Attributes:
        records: Records that it had when these were told, rounded.
        by: Records that it will have, at which effects are to be found.
        days: How many days from the last answer that is; null while the rate is not known.
        records_per_day: The rate at which records have come of late, from the history.
        power: The chance to find the smallest effect.
        confidence: Of the any-time intervals.
        rows: For each outcome and arm, how wide the interval is, the smallest effect, and when it is narrow enough.
    """

    name: str
    fingerprint: str
    records: int
    by: int
    days: float | None
    records_per_day: float | None
    power: float
    confidence: float
    rows: list[outlook.Forecast]


Seen = TypeVar("Seen", Answer, TrialStatus)


class Service:
    """The trials of one database, as this server collects them.

    Its methods block and are not for several threads at once; the server has one thread for them.
    """

    def __init__(
        self, store: Store, shard: str, limits: Limits, pace: Pace | None = None, pair: Pair | None = None
    ) -> None:
        self.store = store
        self.shard = shard
        self.limits = limits
        self.producers = Producers(store.shards)
        self.pace = pace or Pace()
        self.answers = Answers(store, self.pace)
        self.records = RecordTrials(store, shard, limits, self.answers, self.producers)
        self.devices = DeviceTrials(store, shard, self.answers, pair)
        self.endings = DeviceEndings(store, self.answers, self.devices)
        self._board = Board(self.pace)
        self._ticked: int | None = None
        self._due: deque[Callable[[], list[FoldawayError]]] = deque()

    def create(self, text: str, team: str | None = None) -> Created:
        """Register a plan, for a team if a team's token asks. The same plan again gives new tokens; another is refused.

        Raises:
            IngestError: The trial has ended.
        """
        plan = Plan.loads(text)
        self.devices.partner(plan)
        key = secrets.token_bytes(16) if plan.keyed and plan.federated is None else None
        row = self.store.create_trial(plan, key, team)
        if row.status == "ended":
            raise IngestError(
                410,
                f"{row.name} has ended: it takes no more records, and no tokens were issued. To read its effects, get "
                f"a token from `foldaway token issue read {row.name}`; for another trial, change the plan's name.",
            )
        ingest, read = (self.store.tokens.issue(Wanted(scope, plan.name))[1] for scope in _ISSUED)
        head = self.store.ledger.head(row.name)
        return Created(row.name, row.fingerprint, ingest, read, row.new, head)

    def certificate(self, name: str) -> bytes:
        """A signed file about a trial that has ended: plan, effects and ledger.

        Raises:
            IngestError: It is open, or older than ledgers.
        """
        row = self.store.trial(name)
        if row.final is None:
            raise IngestError(409, "the trial is open; a certificate is issued once it has ended.")
        self.store.end_trial(name, row.final)  # in case a crash came before its key was destroyed, and that noted
        ledger = self.store.ledger.read(name)
        if not ledger.ended:
            raise IngestError(409, "the trial ended before foldaway kept ledgers; it has no certificate.")
        effects = bytes(msgspec.json.decode(row.final, type=Answer).effects).decode()
        kept = planned(Plan.loads(row.plan))
        return issue(self.store.ledger.signer(), row.plan, None if effects == "null" else effects, ledger, kept).dumps()

    def statuses(self) -> list[TrialStatus]:
        """All trials, for an administrator."""
        return [self._status(row) for row in self.store.trials()]

    def statuses_of(self, team: str) -> list[TrialStatus]:
        """A team's trials, as a reader sees them."""
        return [self.status(row.name, reader=True) for row in self.store.trials() if row.team == team]

    def status(self, name: str, *, reader: bool = False) -> TrialStatus:
        """One trial, as it stands now or as a reader sees it."""
        row = self.store.trial(name)
        now = self._status(row)
        if not reader:
            return now
        stage = None if now.federated is None else now.federated.stage
        shown: TrialStatus = self._board.shown(name, (row.status, row.exact_answers, stage), now)
        return self._for_reader(shown, row)

    def _for_reader(self, answer: Seen, row: TrialRow) -> Seen:
        if answer.federated is None:
            return answer
        devices = self._board.devices(row.name, answer.federated, Plan.loads(row.plan).privacy.cohort)
        return msgspec.structs.replace(answer, federated=devices)

    def _status(self, row: TrialRow) -> TrialStatus:
        plan = Plan.loads(row.plan)
        shards = self.store.shards.counts(row.name)
        federated = plan.federated is not None
        records: int | None = round_count(sum(shard.n for shard in shards))
        given_up: int | None = round_count(left_out(shards))
        wiped = self.records.forgotten.get(row.name)
        if plan.release is not None:
            records = given_up = wiped = None
        if row.final is not None:  # as the final effects say, and what other servers have given up since
            final = msgspec.json.decode(row.final, type=Answer)
            records = final.records
            given_up = None if given_up is None else max(final.left_out or 0, given_up)
        return TrialStatus(
            row.name,
            row.fingerprint,
            row.status,
            records,
            plan.privacy.cohort,
            given_up,
            row.created,
            row.ended,
            None if wiped is None else wiped // 3600 * 3600,
            self.devices.who(plan) if federated else None,
            row.exact_answers,
            self.store.ledger.head(row.name),
            row.team,
        )

    @again_after(TrialEnded)  # another server has ended it just now: its final effects are there
    def effects(self, name: str, *, exact: bool = False, reader: bool = False) -> Answer:
        """What is told of a trial; exact numbers if they are wanted, and it is counted that somebody asked.

        Raises:
            IngestError: Exact numbers of a trial that has ended are gone.
        """
        row = self.store.trial(name)
        if reader:
            return self._for_reader(self.effects(name), row)
        if row.final is not None:
            final = Answer.last_word(row.final)
            if exact and (effects := final.opened()) is not None and effects.rounded:
                raise IngestError(
                    410,
                    "the trial has ended, and its exact numbers were destroyed with its tallies. Its final effects are "
                    "rounded: ask for them without --exact (GET /v1/trials/NAME/effects).",
                )
            return final
        plan = Plan.loads(row.plan)
        trials = self.records if plan.federated is None else self.devices
        if not exact:
            return trials.so_far(plan)
        answer = trials.exactly(plan)
        self.store.count_exact_answer(name)
        return answer

    def report(self, name: str, *, exact: bool = False) -> str:
        """The same as a page.

        Raises:
            TooEarly: Nothing may be told yet.
            EstimateError: It was ended without effects.
        """
        effects = self.effects(name, exact=exact).opened()
        if effects is None:
            raise EstimateError("the trial ended without effects, so there is no report.")
        return effects_page(effects, self.store.ledger.read(name)).html

    @again_after(TrialEnded)
    def outlook(
        self, name: str, records: int | None = None, days: float | None = None, width: float | None = None
    ) -> Ahead:
        """What a trial can still find, from what was told of it alone, so that nothing new is told.

        Raises:
            IngestError: It has ended.
            TooEarly: Nothing may be told yet.
            EstimateError: The question cannot be answered.
        """
        row = self.store.trial(name)
        if row.final is not None:
            raise IngestError(410, "the trial has ended: its effects are final, and no more records come.")
        plan = Plan.loads(row.plan)
        effects = (self.records if plan.federated is None else self.devices).so_far(plan).opened()
        if effects is None:
            raise TooEarly("effects of this trial come when it ends.")
        rate = self.answers.rate(name)
        found = effects.outlook(records=records, days=days, records_per_day=rate, width=width, sequential=True)
        about = (found.records, found.by, found.days, rate, found.power, found.confidence)
        return Ahead(row.name, row.fingerprint, *about, list(found))

    def history(self, name: str, after: int, series: Series) -> History:
        """How the estimates have moved: the answers that were given."""
        row = self.store.trial(name)
        return History(row.name, row.fingerprint, self.answers.course(name, after, series))

    def end(self, name: str, wanted: EndRequest | None = None) -> Answer:
        """End a trial: no more records, its key destroyed, its effects final.

        A trial whose records stay on devices may wait for reports first: until then the answer has no effects.

        Raises:
            IngestError: Effects would be withheld, and that is not wanted.
        """
        row = self.store.trial(name)
        plan = Plan.loads(row.plan)
        wanted = wanted or EndRequest()
        if plan.federated is not None:
            exact = self.endings.end(plan, wanted)
            row = self.store.trial(name)
            if row.final is None:
                shards = self.store.shards.counts(name)
                told = plan.release is None
                records, lost = (sum(shard.n for shard in shards), left_out(shards)) if told else (None, None)
                return Answer.of(plan, None, records, lost, self.devices.who(plan))
        elif wanted.waits:
            raise IngestError(409, "a deadline or a share is for trials whose records stay on devices.")
        else:
            row, exact = self.records.end(name, without_effects=wanted.without_effects)
        answer = Answer.last_word(row.final or "")
        if not wanted.exact:
            return answer
        if exact is None:  # it ended before
            return self.effects(name, exact=True)
        self.store.count_exact_answer(name)
        effects = msgspec.Raw(replace(exact, final=True).to_json().encode())
        return msgspec.structs.replace(answer, effects=effects, records=sum(exact.counts.values()))

    def remove(self, name: str) -> None:
        """Delete all that is stored of a trial that has ended, and its tokens. Its name stays taken.

        Raises:
            IngestError: It is open.
        """
        row = self.store.trial(name)
        if row.final is None:
            raise IngestError(409, f"{name} is open: end it before you remove it (`foldaway end {name}`).")
        self.store.end_trial(name, row.final)  # in case a crash came before its key was destroyed
        self.store.remove_trial(name)
        self.answers.drop(name)

    def tick(self) -> bool:
        """Often: on a new tick, store what has waited and tell what is due; notice what is to end, or has.

        A call looks at one trial, so that batches have their turn before the next; without ticks, at all of them.

        Returns:
            Whether there are more to be looked at.

        Raises:
            FoldawayError: The first that went wrong; the other trials had their turn all the same.
        """
        faults = self.endings.end_due()
        if not self._due and (tick := self.pace.tick()) != self._ticked:
            self._due.extend(
                partial(trials.tick, name) for trials in (self.records, self.devices) for name in trials.names
            )
            self._ticked = tick
        while self._due:
            if late := self._due.popleft()():
                faults, self._ticked = late + faults, None  # once more in a second
            if not self.pace.at_once:
                break
        if faults:
            raise faults[0]
        return bool(self._due)

    def stop(self) -> list[GivenUp]:
        """Commit what the cohort allows; the records that are given up. Devices hold what is not durable themselves."""
        for name in self.devices.names:
            self.devices.tick(name)
        return self.records.stop()
