"""One federated trial on one server: messages in, each counted once; shares out, a cohort of devices apart.

As with batches of records, ``durable`` is what the database holds of this server's share, and ``live`` is that and the
messages folded since. A commit writes the live tallies, marks the messages' numbers as used and counts the reports, in
one transaction. A site's tallies are a cohort by themselves, and are committed without the messages that still wait for
theirs. Of single devices nothing is in memory but the numbers of a cohort that has not come together yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self

from foldaway.account.pace import Pace, Waiting
from foldaway.errors import (
    Conflict,
    FoldawayError,
    MessageError,
    PlanError,
    TooEarly,
    TrialClosed,
    UnknownNumber,
    instead_of,
    many,
)
from foldaway.federated.messages import Enrolment, Kind, Moments, Received, Sent, Stage, decoded
from foldaway.federated.modes import mode_of, site_mode_of
from foldaway.federated.modes.share import Share
from foldaway.federated.replies.published import Published
from foldaway.keeping.cohort import Newcomers, least_to_publish, too_few_to_send
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.service.database.device_table import Arrivals, DeviceTable, Enrolled, Known, hashed
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store
from foldaway.service.database.tables import Change
from foldaway.service.database.token_table import bringing

Outcome = Received | FoldawayError
"""What became of a message: it was received, or refused."""

Bodies = Sequence[bytes | bytearray]

_NEW = Known(used=False, mark=None)

_DURABLE, _WAITS = Received(repeated=True, durable=True), Received(repeated=True, durable=False)


@dataclass
class _Pending:
    """What is folded and not yet durable.

    Attributes:
        live: The durable share, and the messages folded since.
        waiting: How long they wait to be stored.
        newcomers: How many there are.
        arrivals: The hashes of their numbers, and how many are reports.
    """

    live: Share
    waiting: Waiting
    newcomers: Newcomers = field(default_factory=Newcomers)
    arrivals: Arrivals = field(default_factory=Arrivals)

    def copy(self) -> Self:
        """The same, to go back to."""
        arrivals = Arrivals(set(self.arrivals.used), set(self.arrivals.fresh), Counter(self.arrivals.reported))
        return type(self)(self.live.copy(), copy(self.waiting), self.newcomers, arrivals)

    def add(self, kind: Kind, number: bytes, arm: str) -> None:
        """A message of this number is to be folded."""
        if kind == "moments":
            self.arrivals.fresh.add(number)
        else:
            self.arrivals.used.add(number)
            self.arrivals.reported[arm] += 1
        self.newcomers += Newcomers(1, 1)
        self.waiting.came(Newcomers(1, 1), self.newcomers)


class DeviceCollector:
    """A federated trial's share on this server. Not for several threads at once: the server has one that folds."""

    def __init__(self, store: Store, plan: Plan, shard: str, pace: Pace | None = None) -> None:
        self._store = store
        self._pace = pace or Pace()
        self._table = store.devices
        self._mode = mode_of(plan)
        self.plan = plan
        self.shard = shard
        self._published: Published | None = None
        self._given_up = 0  # messages left out, and not yet counted as such in the database
        self._reload()

    def _reload(self) -> None:
        """Start again from what is durable; messages folded since are with their devices."""
        row = self._store.shards.one(self.plan.name, self.shard)
        durable = Share.of(self.plan, row.state, self.published())
        # All at once, when nothing can fail any more: older tallies under a newer version would overwrite what is safe.
        self._version, self._durable = row.version, durable
        self._wait(durable)

    def _wait(self, durable: Share) -> None:
        """Begin to wait for the next cohort."""
        self._pending = _Pending(durable.copy(), Waiting(self.plan.privacy, self._pace))

    def published(self) -> Published | None:
        """What was published when the trial began to close, if the mode publishes anything."""
        if self._published is None and self._mode.replies:
            data = self._table.published(self.plan.name)
            self._published = None if data is None else Published.loads(data, self.plan)
        return self._published

    @property
    def pending(self) -> int:
        """Messages folded since the last commit."""
        return self._pending.newcomers.records

    def receive(self, kind: Kind, bodies: Bodies) -> list[Outcome]:
        """Take messages of one kind in, and say of each what became of it.

        Raises:
            Conflict: Another server has taken one of the same messages; what was pending here must come again.
            Unavailable: The database cannot be reached; nothing was taken.
        """
        if kind == "enrolments":
            return _enrol(self._table, self._durable, bodies)
        self.leave_out_late_moments()
        before = self._pending.copy()
        try:
            outcomes = self._take(kind, bodies)
            self.commit_if_due(on_tick=False)
        except Conflict:
            raise  # with all that was pending
        except BaseException as error:
            # Not acknowledged: as if nothing had come. Should the database have taken it nevertheless, the version
            # is no longer ours, and the next commit is a Conflict.
            self._pending = before
            if not isinstance(error, TrialClosed):
                raise
            # Another server has moved on in between. Of these messages some may be durable all the same: each gets
            # the answer that it would get now.
            self.leave_out_late_moments()
            outcomes = self._take(kind, bodies)
        if self.pending:
            return outcomes
        return [Received(o.repeated, durable=True) if isinstance(o, Received) else o for o in outcomes]

    def leave_out_late_moments(self) -> None:
        """Give up moments that wait here while another server has begun to close, and published without them."""
        late = self._pending.arrivals.fresh and self._table.situation(self.plan).stage != "open"
        if late or self._given_up:
            self.leave_out_pending()

    def _take(self, kind: Kind, bodies: Bodies) -> list[Outcome]:
        """Fold what may be folded: moments, each under a number of its own, or reports, under enrolled ones."""
        moments, mode, live = kind == "moments", self._mode, self._pending.live
        if moments and not mode.replies:
            raise MessageError("devices of this trial send no moments: its plan is not of the mode scores.")
        outcomes, messages = _read(bodies, Moments if moments else mode.reports)
        numbers = {place: hashed(self.plan, message.number) for place, message in messages.items()}
        stage, known = self._table.look(self.plan, numbers.values())
        published = self.published() if stage == "replying" else None
        taken: list[Any] = []
        values: list[Floats] = []
        for place, message in messages.items():
            outcome = self._answered(kind, numbers[place], stage, known)
            if kind == "reports" and not known.get(numbers[place], _NEW).fits(
                Enrolled.of(self.plan, message.number, message.arm)
            ):
                outcome = _other_arm()
            if outcome is None:
                try:
                    values.append(mode.check(live, message, published))
                    taken.append(message)
                    self._pending.add(kind, numbers[place], message.arm)
                    outcome = Received(repeated=False, durable=False)
                except (MessageError, TooEarly) as refused:
                    outcome = refused.with_traceback(None)  # its frames hold the messages
            outcomes[place] = outcome
        mode.fold(live, taken, values, published)
        return outcomes

    def _answered(self, kind: Kind, number: bytes, stage: Stage, known: dict[bytes, Known]) -> Outcome | None:
        """What is to be said of a message from its number alone, if that is enough."""
        if known.get(number, _NEW).used:
            return _DURABLE
        if any(number in numbers for numbers in (self._pending.arrivals.used, self._pending.arrivals.fresh)):
            return _WAITS
        if kind == "moments" and number in known:
            return MessageError("this number is enrolled for a report; moments need one of their own.")
        if stage == "closed" or (kind == "moments" and stage != "open"):
            return _too_late(self.plan)
        if kind == "reports" and number not in known:
            return UnknownNumber("this number is not enrolled; enrol it first.")
        return None

    def receive_site(self, number: bytes, data: bytes | bytearray, token: str | None = None) -> Received:
        """Take a site's tallies in: at once durable, since they are of a cohort by themselves.

        Raises:
            MessageError: They are not tallies of a cohort of units under this plan, or of more units than the token is
                good for.
            TrialClosed: The trial takes no more reports.
        """
        with instead_of(PlanError, MessageError("this trial takes no tallies of sites: its plan has no `unit`.")):
            mode = site_mode_of(self.plan)
        key = hashed(self.plan, number)
        stage, known = self._table.look(self.plan, [key])
        if known:
            return _DURABLE
        if stage != "open":  # as devices, sites join while it is open
            raise _too_late(self.plan)
        site = mode.site(self._durable, bytes(data))
        units = Counter(dict(zip(self.plan.arms, site.devices, strict=True)))
        if too_few_to_send(self.plan.privacy, units):
            least = f"{many(least_to_publish(self.plan.privacy), 'unit')}, the plan's `cohort` or `smallest_cell`"
            raise MessageError(f"the tallies of an arm are of fewer than {least}; they would say too much.")
        durable, live = self._durable.merge(site), self._pending.live.merge(site)
        try:
            also = [] if token is None else [bringing(token, units.total())]
            self._write(durable, Arrivals(fresh={key}, reported=units, enrolled=units), ("open",), also)
        except TrialClosed:
            if self._table.known(self.plan.name, [key]):
                return _DURABLE  # another server has taken it, and moved on
            raise
        self._pending.live = live
        return Received(repeated=False, durable=True)

    def commit_if_due(self, *, on_tick: bool = True) -> None:
        """Make the live tallies durable, with the numbers of what is in them, if a cohort has waited long enough."""
        pending = self._pending
        if not pending.waiting.is_over(pending.newcomers, on_tick=on_tick):
            return
        # Moments must be in what is published.
        stages: tuple[Stage, ...] = ("open",) if pending.arrivals.fresh else ("open", "replying")
        self._write(pending.live, pending.arrivals, stages)
        self._wait(self._durable)

    def _write(self, share: Share, arrivals: Arrivals, stages: tuple[Stage, ...], also: Sequence[Change] = ()) -> None:
        try:
            self._version = self._table.commit(
                self.plan,
                self.shard,
                version=self._version,
                n=share.trial.n,
                state=share.dumps(),
                arrivals=arrivals,
                stages=stages,
                also=also,
            )
        except Conflict:
            # Another server has taken some of the same messages: what is pending here will come again.
            self._reload()
            raise
        self._durable = share

    def live(self, shards: Sequence[ShardRow]) -> Share:
        """This server's share with what is pending.

        Raises:
            Conflict: What is pending here is no longer to be counted: another server has taken some of it, or the share
                is not the one that it was built upon. It must come again.
        """
        taken = self._table.known(self.plan.name, self._pending.arrivals.used).values()
        if (
            any(each.used for each in taken)
            or sum(row.version for row in shards if row.shard == self.shard) != self._version
        ):
            self._reload()
            raise Conflict("another server has taken the same messages, or written this one's share, in between.")
        return self._pending.live

    @property
    def arrivals(self) -> Arrivals:
        """The numbers of the messages that are pending."""
        return self._pending.arrivals

    def leave_out_pending(self) -> None:
        """Once the trial has moved on: give up the messages that no cohort came together for, and count them."""
        count = self.pending
        self._reload()  # tallies and numbers together, or neither: none of what is given up may be in a later commit
        self._given_up += count
        if self._given_up:
            self._store.shards.leave_out(self.plan.name, self.shard, self._given_up)
            self._given_up = 0


def _read(bodies: Bodies, kind: type[Sent]) -> tuple[list[Outcome], dict[int, Sent]]:
    """By place: what is refused already, and the messages."""
    outcomes: list[Outcome] = [_WAITS] * len(bodies)
    messages: dict[int, Sent] = {}
    for place, body in enumerate(bodies):
        try:
            messages[place] = decoded(body, kind)
        except MessageError as refused:
            outcomes[place] = refused.with_traceback(None)
    return outcomes, messages


def _enrol(table: DeviceTable, share: Share, bodies: Bodies) -> list[Outcome]:
    """Register the numbers of devices that join, and say of each what became of it."""
    plan = share.plan
    outcomes, messages = _read(bodies, Enrolment)
    arms: dict[bytes, Enrolled] = {}
    places: dict[bytes, list[int]] = {}
    for place, message in messages.items():
        try:
            share.code(message.arm)
        except MessageError as refused:
            outcomes[place] = refused.with_traceback(None)
            continue
        number, enrolled = hashed(plan, message.number), Enrolled.of(plan, message.number, message.arm)
        if arms.setdefault(number, enrolled) != enrolled:
            outcomes[place] = _other_arm()
            continue
        outcomes[place] = _DURABLE
        places.setdefault(number, []).append(place)
    try:
        try:
            known = table.enrol(plan, arms)
        except Conflict:  # another server has just registered one of them: it will be found now
            known = table.enrol(plan, arms)
    except TrialClosed as closed:
        for number in arms.keys() - table.known(plan.name, arms).keys():
            for place in places[number]:
                outcomes[place] = closed
        return outcomes
    for number, enrolled in arms.items():
        if number not in known:
            outcomes[places[number][0]] = Received(repeated=False, durable=True)
        elif not known[number].fits(enrolled):
            for place in places[number]:
                outcomes[place] = _other_arm()
    return outcomes


def _other_arm() -> MessageError:
    return MessageError("the message names another arm than the one that its number was enrolled for.")


def _too_late(plan: Plan) -> TrialClosed:
    return TrialClosed(f"the trial {plan.name} is closed and takes no more of these messages.")
