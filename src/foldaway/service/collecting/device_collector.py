"""One federated trial on one server: messages in, each counted once; shares out, a cohort of devices apart.

As with batches of records, ``durable`` is what the database holds of this server's share, and ``live`` is that and the
messages folded since. A commit writes the live tallies, marks the messages' numbers as used and counts the reports, in
one transaction. A site's tallies are a cohort by themselves, and are committed without the messages that still wait for
theirs. Of single devices nothing is in memory but the numbers of a cohort that has not come together yet.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal, cast

from foldaway.errors import (
    Conflict,
    FoldawayError,
    MessageError,
    StateError,
    TooEarly,
    TrialClosed,
    UnknownNumber,
    instead_of,
)
from foldaway.federated.coordinator.share import Published, Share
from foldaway.federated.messages import REPORTS, Enrolment, Moments, Received, Scores, Stage, Sums, decoded
from foldaway.keeping.cohort import Gate, too_few_to_send
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.service.database.device_table import Batch, hashed
from foldaway.service.database.store import Store
from foldaway.tallies import UNITS
from foldaway.tallies.scores import UnitScores
from foldaway.trial import Trial

Kind = Literal["enrolments", "moments", "reports"]
Outcome = Received | FoldawayError
"""What became of a message: it was received, or refused."""


class DeviceCollector:
    """A federated trial's share on this server. Not for several threads at once: the server has one that folds."""

    def __init__(self, store: Store, plan: Plan, shard: str) -> None:
        self._store = store
        self._table = store.devices
        self.plan = plan
        self.shard = shard
        self._published: Published | None = None
        self._given_up = 0  # messages left out, and not yet counted as such in the database
        self._reload()

    def _reload(self) -> None:
        """Start again from what is durable; messages folded since are with their devices."""
        row = self._store.shard(self.plan.name, self.shard)
        durable = Share(self.plan) if row.state is None else Share.loads(row.state, self.plan, self.published())
        # All at once, when nothing can fail any more: older tallies under a newer version would overwrite what is safe.
        self._version, self._durable, self._live = row.version, durable, durable.copy()
        self._start_waiting()

    def _start_waiting(self) -> None:
        self._used: set[bytes] = set()
        self._fresh: set[bytes] = set()
        self._reported: Counter[str] = Counter()
        self._gate = Gate(self.plan.privacy)

    def published(self) -> Published | None:
        """What was published when the trial began to close, if the mode publishes anything."""
        if self._published is None and (data := self._table.published(self.plan.name)) is not None:
            self._published = Published.loads(data, self.plan)
        return self._published

    @property
    def pending(self) -> int:
        """Messages folded since the last commit."""
        return self._gate.pending

    @property
    def pending_reports(self) -> Counter[str]:
        """Reports among them, by arm."""
        return Counter(self._reported)

    def receive(self, kind: Kind, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """Take messages of one kind in, and say of each what became of it; commit if a cohort has come together.

        Raises:
            Conflict: Another server has taken one of the same messages; what was pending here must come again.
            Unavailable: The database cannot be reached; nothing was taken.
        """
        if kind == "enrolments":
            return self._enrol(bodies)
        self.leave_out_late_moments()
        before = self._live.copy(), set(self._used), set(self._fresh), Counter(self._reported), self._gate.copy()
        take = self._moments if kind == "moments" else self._reports
        try:
            outcomes = take(bodies)
            self.commit_if_due()
        except Conflict:
            raise  # with all that was pending
        except BaseException as error:
            # Not acknowledged: as if nothing had come. Should the database have taken it nevertheless, the version
            # is no longer ours, and the next commit is a Conflict.
            self._live, self._used, self._fresh, self._reported, self._gate = before
            if not isinstance(error, TrialClosed):
                raise
            # Another server has moved on in between. Of these messages some may be durable all the same: each gets
            # the answer that it would get now.
            self.leave_out_late_moments()
            outcomes = take(bodies)
        if self.pending:
            return outcomes
        return [Received(o.repeated, durable=True) if isinstance(o, Received) else o for o in outcomes]

    def leave_out_late_moments(self) -> None:
        """Give up moments that wait here while another server has begun to close, and published without them."""
        late = self.plan.mode == "scores" and self._fresh and self._table.standing(self.plan).stage != "open"
        if late or self._given_up:
            self.leave_out_pending()

    def _enrol(self, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        arms: dict[bytes, str] = {}
        first: dict[bytes, int] = {}
        numbers: dict[int, bytes] = {}
        for place, body in enumerate(bodies):
            try:
                message = decoded(body, Enrolment)
                self._live.code(message.arm)
            except MessageError as refused:
                outcomes.append(refused)
                continue
            number = numbers[place] = hashed(self.plan, message.number)
            outcomes.append(Received(repeated=True, durable=True))
            first.setdefault(number, place)
            arms.setdefault(number, message.arm)
        try:
            new = self._register(arms)
        except TrialClosed as closed:
            known = self._table.known(self.plan.name, arms)
            return [
                closed if isinstance(outcome, Received) and numbers[place] not in known else outcome
                for place, outcome in enumerate(outcomes)
            ]
        for number, place in first.items():
            if number in new:
                outcomes[place] = Received(repeated=False, durable=True)
        return outcomes

    def _register(self, arms: dict[bytes, str]) -> set[bytes]:
        try:
            return self._table.enrol(self.plan, arms)
        except Conflict:  # another server has just registered one of them: it will be found now
            return self._table.enrol(self.plan, arms)

    def _moments(self, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """The factors of records, in mode scores, each under a number of its own."""
        if self.plan.mode != "scores":
            raise MessageError("devices of this trial send no moments: its plan is not of the mode scores.")
        outcomes, messages, numbers = self._decoded(bodies, Moments)
        stage, known = self._table.look(self.plan, numbers.values())
        taken: list[tuple[Moments | Sums, Floats]] = []
        for place, message in messages.items():
            number = numbers[place]
            if (seen := self._seen(number, known)) is not None:
                outcomes[place] = seen
            elif number in known:
                outcomes[place] = MessageError("this number is enrolled for a report; moments need one of their own.")
            elif stage != "open":
                outcomes[place] = self._too_late()
            else:
                outcomes[place] = self._taken(message, taken)
                if isinstance(outcomes[place], Received):
                    self._fresh.add(number)
        self._fold(taken)
        return outcomes

    def _reports(self, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """What the mode asks of every device once, under its enrolled number."""
        outcomes, messages, numbers = self._decoded(bodies, REPORTS[self.plan.mode or ""])
        stage, known = self._table.look(self.plan, numbers.values())
        taken: list[tuple[Moments | Sums, Floats]] = []
        replies: list[tuple[Scores, Floats]] = []
        for place, message in messages.items():
            number = numbers[place]
            if (seen := self._seen(number, known)) is not None:
                outcomes[place] = seen
            elif stage == "closed":
                outcomes[place] = self._too_late()
            elif number not in known:
                outcomes[place] = UnknownNumber("this number is not enrolled; enrol it first.")
            elif isinstance(message, Scores):
                outcomes[place] = self._taken_reply(message, stage, replies)
            else:
                outcomes[place] = self._taken(message, taken)
            if outcomes[place] == Received(repeated=False, durable=False):
                self._used.add(number)
                self._reported[message.arm] += 1
        self._fold(taken)
        if replies and (published := self.published()) is not None:
            self._live.fold_replies([message for message, _ in replies], [values for _, values in replies], published)
            self._gate.take(len(replies), time.monotonic())
        return outcomes

    def _decoded(
        self, bodies: Sequence[bytes | bytearray], kind: type[Moments] | type[Sums] | type[Scores]
    ) -> tuple[list[Outcome], dict[int, Moments | Sums | Scores], dict[int, bytes]]:
        """By place: what is refused already, the messages, and their numbers' hashes."""
        outcomes: list[Outcome] = []
        messages: dict[int, Moments | Sums | Scores] = {}
        for place, body in enumerate(bodies):
            try:
                messages[place] = decoded(body, kind)
                outcomes.append(Received(repeated=True, durable=False))
            except MessageError as refused:
                outcomes.append(refused)
        return outcomes, messages, {place: hashed(self.plan, m.number) for place, m in messages.items()}

    def _seen(self, number: bytes, known: dict[bytes, bool]) -> Received | None:
        if known.get(number):
            return Received(repeated=True, durable=True)
        return Received(repeated=True, durable=False) if number in self._used or number in self._fresh else None

    def _taken(self, message: Moments | Sums | Scores, taken: list[tuple[Moments | Sums, Floats]]) -> Outcome:
        assert not isinstance(message, Scores)
        try:
            taken.append((message, self._live.check(message)))
        except MessageError as refused:
            return refused
        return Received(repeated=False, durable=False)

    def _taken_reply(self, message: Scores, stage: Stage, replies: list[tuple[Scores, Floats]]) -> Outcome:
        published = self.published() if stage == "replying" else None
        if published is None:
            return TooEarly("replies are taken once the trial is being closed: ask for the coefficients first.")
        try:
            replies.append((message, self._live.check_reply(message, published)))
        except MessageError as refused:
            return refused
        return Received(repeated=False, durable=False)

    def _too_late(self) -> TrialClosed:
        return TrialClosed(f"the trial {self.plan.name} is closed and takes no more of these messages.")

    def _fold(self, taken: list[tuple[Moments | Sums, Floats]]) -> None:
        if taken:
            self._live.fold([message for message, _ in taken], [triangle for _, triangle in taken])
            self._gate.take(len(taken), time.monotonic())

    def receive_site(self, number: bytes, data: bytes | bytearray) -> Received:
        """Take a site's tallies in: at once durable, since they are of a cohort by themselves.

        Raises:
            MessageError: They are not tallies of a cohort of units under this plan.
            TrialClosed: The trial takes no more reports.
        """
        if not self.plan.complete_units:
            raise MessageError("this trial takes no tallies of sites: its plan has no `unit` with `complete_units`.")
        key = hashed(self.plan, number)
        stage, known = self._table.look(self.plan, [key])
        if known:
            return Received(repeated=True, durable=True)
        if stage != "open":  # as devices, sites join while it is open
            raise self._too_late()
        trial, units = self._site(data)
        durable, live = (share.with_site(trial, units) for share in (self._durable, self._live))
        try:
            self._write(durable, Batch([], [key], units, units), ("open",))
        except TrialClosed:
            if self._table.known(self.plan.name, [key]):
                return Received(repeated=True, durable=True)  # another server has taken it, and moved on
            raise
        self._live = live
        return Received(repeated=False, durable=True)

    def _site(self, data: bytes | bytearray) -> tuple[Trial, Counter[str]]:
        with instead_of(StateError, lambda error: MessageError(f"the body is not the tallies of a site: {error}")):
            trial = Trial.loads(bytes(data), self.plan)
        tallies = [cast(UnitScores, arm.tallies[UNITS]) for arm in trial.arms]
        units = Counter(dict(zip(self.plan.arms, (tally.clusters for tally in tallies), strict=True)))
        if any(tally.n != arm.n for tally, arm in zip(tallies, trial.arms, strict=True)):
            raise MessageError("the tallies hold records without a unit; every record needs one.")
        if too_few_to_send(self.plan.privacy, units):
            cohort = f"{self.plan.privacy.cohort:,} units, the plan's cohort"
            raise MessageError(f"the tallies of an arm are of fewer than {cohort}; they would say too much.")
        return trial, units

    def commit_if_due(self) -> None:
        """Commit if a cohort has come together, or the plan's patience is over."""
        if self._gate.may_write(time.monotonic()):
            self.commit()

    def commit(self) -> None:
        """Make the live tallies durable, with the numbers of what is in them, in one transaction."""
        # Moments must be in what is published.
        stages: tuple[Stage, ...] = ("open",) if self._fresh else ("open", "replying")
        self._write(self._live, Batch(sorted(self._used), sorted(self._fresh), self._reported, {}), stages)
        self._live = self._durable.copy()
        self._start_waiting()

    def _write(self, share: Share, batch: Batch, stages: tuple[Stage, ...]) -> None:
        try:
            self._version = self._table.commit(
                self.plan,
                self.shard,
                version=self._version,
                n=share.trial.n,
                state=share.dumps(),
                batch=batch,
                stages=stages,
            )
        except Conflict:
            # Another server has taken some of the same messages: what is pending here will come again.
            self._reload()
            raise
        self._durable = share

    def finish(self) -> int:
        """Before the trial moves on: commit what may be committed.

        Returns:
            The messages that may not, since they are no cohort: they are to be left out.
        """
        self.leave_out_late_moments()
        if self.pending and not self._gate.left_out():
            self.commit()
        return self.pending

    def leave_out_pending(self) -> None:
        """Once the trial has moved on: give up the messages that no cohort came together for, and count them."""
        count = self.pending
        self._reload()  # tallies and numbers together, or neither: none of what is given up may be in a later commit
        self._given_up += count
        if self._given_up:
            self._store.leave_out(self.plan.name, self.shard, self._given_up)
            self._given_up = 0
