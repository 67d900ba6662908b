"""One federated trial on one server: messages in, each counted once.

A site's tallies are a cohort by themselves, and are committed without the messages that still wait for theirs. Of
single devices nothing is in memory but the numbers of a cohort that has not come together yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from foldaway.account.pace import Pace
from foldaway.errors import (
    Conflict,
    FoldawayError,
    IngestError,
    MessageError,
    PlanError,
    TooEarly,
    TrialEnded,
    UnknownNumber,
    instead_of,
    many,
)
from foldaway.federated.messages import DeviceMoments, Enrolment, Kind, Received, Sent, Stage, decoded
from foldaway.federated.modes import mode_of, site_mode_of
from foldaway.federated.modes.share import ServerShare, require_newcomers
from foldaway.federated.replies.published import Published
from foldaway.keeping.cohort import Newcomers, least_to_publish, too_few_to_send
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.service.collecting.collector import Collector
from foldaway.service.collecting.device_store import DeviceStore
from foldaway.service.database.device_table import Arrivals, DeviceTable, Enrolled, Known, hashed, hashed_report
from foldaway.service.database.invitation_table import hashed_invitation
from foldaway.service.database.store import Store
from foldaway.service.database.token_table import bringing

Outcome = Received | FoldawayError
"""What became of a message: it was received, or refused."""

Bodies = Sequence[bytes | bytearray]

_NEW = Known(used=False, mark=None)

_DURABLE, _WAITS = Received(repeated=True, durable=True), Received(repeated=True, durable=False)


class DeviceInbox(Collector[ServerShare, Arrivals]):
    """Takes devices' messages into this server's account of a federated trial."""

    def __init__(
        self, store: Store, plan: Plan, shard: str, pace: Pace | None = None, place: DeviceStore | None = None
    ) -> None:
        place = place or DeviceStore(store, plan, shard)
        super().__init__(place, store.shards, shard, pace)
        self.published = place.published
        self._table, self._tokens, self._shards = store.devices, store.tokens, store.shards
        self._mode = mode_of(plan)

    @property
    def arrivals(self) -> Arrivals:
        """The numbers of the messages that are pending."""
        return self.account.reached

    def receive(self, kind: Kind, bodies: Bodies) -> list[Outcome]:
        """Take messages of one kind in, and say of each what became of it.

        Raises:
            Conflict: Another server has taken one of the same messages; what was pending here must come again.
            Unavailable: The database cannot be reached; nothing was taken.
        """
        if kind == "enrolments":
            return _enrol(self._table, self.account.durable.tallies, bodies)
        self.leave_out_late_moments()
        try:
            outcomes = self.collect(partial(self._take, kind, bodies))
        except TrialEnded:
            # Another server has moved on in between. Of these messages some may be durable all the same: each gets
            # the answer that it would get now.
            self.leave_out_late_moments()
            outcomes = self._take(kind, bodies)
        if self.pending:
            return outcomes
        return [Received(o.repeated, durable=True) if isinstance(o, Received) else o for o in outcomes]

    def leave_out_late_moments(self) -> None:
        """Give up moments that wait here while another server has begun to end, and published without them."""
        late = self.arrivals.fresh and self._table.situation(self.plan).stage != "open"
        if late or self._left_out:
            self.leave_out_pending()

    def _is_overtaken(self) -> bool:
        reports, out = (self._table.known(self.plan.name, of) for of in (self.arrivals.used, self.arrivals.out))
        return any(each.used or each.out for each in reports.values()) or any(each.out for each in out.values())

    def _take(self, kind: Kind, bodies: Bodies) -> list[Outcome]:
        """Fold what may be folded: moments, each under a number of its own, or reports, under enrolled ones."""
        if kind == "withdrawals":
            return self._take_out(bodies)
        moments, mode, live = kind == "moments", self._mode, self.account.live
        if moments and not mode.replies:
            raise MessageError("devices of this trial send no moments: its plan is not of the mode scores.")
        outcomes, messages = _read(bodies, DeviceMoments if moments else mode.reports)
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
                    values.append(self._checked(message, numbers[place], published))
                    taken.append(message)
                    self.arrivals.add(
                        numbers[place], message.arm, None if moments else hashed_report(self.plan, message)
                    )
                    self.account.came(Newcomers(1, 1))
                    outcome = Received(repeated=False, durable=False)
                except (MessageError, TooEarly) as refused:
                    outcome = refused.with_traceback(None)  # its frames hold the messages
            outcomes[place] = outcome
        mode.fold(live, taken, values, published)
        return outcomes

    def _checked(self, message: Any, number: bytes, published: Published | None) -> Floats:
        """The numbers in a message."""
        return self._mode.check(self.account.live, message, published)

    def _answered(self, kind: Kind, number: bytes, stage: Stage, known: dict[bytes, Known]) -> Outcome | None:
        """What is to be said of a message from its number alone, if that is enough."""
        if known.get(number, _NEW).out:
            return TrialEnded("this report was withdrawn, and is not counted.")
        if known.get(number, _NEW).used:
            return _DURABLE
        if any(number in numbers for numbers in (self.arrivals.used, self.arrivals.fresh)):
            return _WAITS
        if kind == "moments" and number in known:
            return MessageError("this number is enrolled for a report; moments need one of their own.")
        if stage == "ended" or (kind == "moments" and stage != "open"):
            return _too_late(self.plan)
        if kind == "reports" and number not in known:
            return UnknownNumber("this number is not enrolled; enrol it first.")
        return None

    def _take_out(self, bodies: Bodies) -> list[Outcome]:
        """Take reports out again. What is not durable is out at once; all else with the next cohort, as reports are."""
        if not self._mode.withdraws:
            raise MessageError(
                f"devices of the mode {self._mode.name} cannot withdraw: their replies would not add up."
            )
        outcomes, messages = _read(bodies, self._mode.reports)
        numbers = {place: hashed(self.plan, message.number) for place, message in messages.items()}
        stage, known = self._table.look(self.plan, numbers.values())
        counted: dict[bytes, Any] = {}
        others: dict[bytes, Any] = {}
        for place, message in messages.items():
            number = numbers[place]
            found, report = known.get(number), hashed_report(self.plan, message)
            if found is not None and found.out:
                outcomes[place] = _DURABLE
            elif stage == "ended":
                outcomes[place] = _too_late(self.plan)
            elif found is None:
                outcomes[place] = UnknownNumber("this number is not enrolled; enrol it first.")
            elif not found.fits(Enrolled.of(self.plan, message.number, message.arm)):
                outcomes[place] = _other_arm()
            elif (found.report if found.used else self.arrivals.used.get(number, report)) != report:
                outcomes[place] = MessageError("the message is not the report that was counted under its number.")
            elif number not in self.arrivals.out and number not in counted:
                (counted if found.used else others).setdefault(number, message)
                outcomes[place] = Received(repeated=False, durable=not found.used)
        if others:
            self._table.withdraw(self.plan, others)
        pending = {number: message for number, message in others.items() if number in self.arrivals.used}
        # A pending report that goes is one newcomer less. A durable one is, too: so whatever was ever written differs
        # from what will be by a cohort of those who are in it.
        self.account.came(Newcomers(-len(pending), -len(pending)))
        self.account.came(Newcomers(len(counted), len(counted) * (-1 if self.plan.privacy.cohort > 1 else 1)))
        if gone := pending | counted:
            out = self.account.live.out = self.account.live.out or ServerShare.of(self.plan)
            self._fold_out(out, gone)
            for number, message in gone.items():
                self.arrivals.take_out(number, message.arm)
        return outcomes

    def _fold_out(self, out: ServerShare, gone: Mapping[bytes, Any]) -> None:
        """Fold reports that are to be taken out, by their hashed numbers."""
        self._mode.fold(out, list(gone.values()), [self._mode.numbers(self.plan, m) for m in gone.values()], None)

    def receive_site(
        self,
        number: bytes,
        data: bytes | bytearray,
        token: str | None = None,
        site: str | None = None,
        sending: int = 1,
    ) -> Received:
        """Take a site's tallies in: at once durable, since they are of a cohort by themselves.

        They take the place of what the site sent before.

        Args:
            number: The message's own.
            data: The tallies.
            token: The id of the site's token, whose label it is called by.
            site: The site's own random number; the message's if left out.
            sending: How many times the site has sent, with this one.

        Raises:
            MessageError: They are not tallies of a cohort of units under this plan, or of more units than the token is
                good for; or the site has sent before, and not a cohort of units has come since.
            TrialEnded: The trial takes no more reports.
        """
        with instead_of(PlanError, MessageError("this trial takes no tallies of sites: its plan has no `unit`.")):
            mode = site_mode_of(self.plan)
        key, site = hashed(self.plan, number), site or number.hex()
        stage, known = self._table.look(self.plan, [key])
        if known:
            return _DURABLE
        if stage != "open":  # as devices, sites join while it is open
            raise _too_late(self.plan)
        share = mode.site(self.account.durable.tallies, bytes(data))
        units = Counter(dict(zip(self.plan.arms, share.devices, strict=True)))
        if too_few_to_send(self.plan.privacy, units):
            least = f"{many(least_to_publish(self.plan.privacy), 'unit')}, the plan's `cohort` or `smallest_cell`"
            raise MessageError(f"the tallies of an arm are of fewer than {least}; they would say too much.")
        name = self._site_name(token, site)
        more = units - Counter(self._sent_before(site, name, sending, share))
        try:
            also = [] if token is None else [bringing(token, more.total())]
            arrivals = Arrivals(fresh={key}, reported=more, enrolled=more, also=also)
            self.account.bring(share.sent_by(site, name, sending), arrivals)
        except TrialEnded:
            if self._table.known(self.plan.name, [key]):
                return _DURABLE  # another server has taken it, and moved on
            raise
        return Received(repeated=False, durable=True)

    def _site_name(self, token: str | None, site: str) -> str:
        row = None if token is None else self._tokens.find(token)
        return (row.label if row is not None else "") or f"site {(token or site)[:6]}"

    def _sent_before(self, site: str, name: str, sending: int, share: ServerShare) -> dict[str, int]:
        """The units, by arm, of what a site sent before, on whichever server, and what now takes its place."""
        shares = [ServerShare.of(self.plan, row.state) for row in self._shards.all(self.plan.name) if row.state]
        before = max(
            (each.sites[site] for each in shares if site in each.sites), key=lambda one: one.number, default=None
        )
        if before is None:
            return {}
        if before.site != name or before.number >= sending:
            raise MessageError(
                "the coordinator has later tallies of this site, or knows it under another token's label."
            )
        require_newcomers(self.plan.privacy, self.plan.arms, before.share.devices, share.devices)
        return dict(zip(self.plan.arms, before.share.devices, strict=True))


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


def _enrol(table: DeviceTable, share: ServerShare, bodies: Bodies) -> list[Outcome]:
    """Register the numbers of devices that join, and say of each what became of it."""
    plan = share.plan
    if plan.sites_only:
        no_devices = MessageError(
            "no device can join this trial: its plan has `strata`, a `baseline`, survival, or outcomes that may be "
            "missing, and only sites can say where, when or of whom."
        )
        return [no_devices for _ in bodies]
    outcomes, messages = _read(bodies, Enrolment)
    arms: dict[bytes, Enrolled] = {}
    invitations: dict[bytes, bytes] = {}
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
        if message.invitation is not msgspec.UNSET:
            invitations.setdefault(number, hashed_invitation(plan, message.invitation))
    try:
        try:
            known, uninvited = table.enrol(plan, arms, invitations)
        except Conflict:  # another server has just registered one of them: it will be found now
            known, uninvited = table.enrol(plan, arms, invitations)
    except TrialEnded as ended:
        for number in arms.keys() - table.known(plan.name, arms).keys():
            for place in places[number]:
                outcomes[place] = ended
        return outcomes
    for number, enrolled in arms.items():
        if number in uninvited:
            for place in places[number]:
                outcomes[place] = _uninvited(plan)
        elif number not in known:
            outcomes[places[number][0]] = Received(repeated=False, durable=True)
        elif not known[number].fits(enrolled):
            for place in places[number]:
                outcomes[place] = _other_arm()
    return outcomes


def _uninvited(plan: Plan) -> IngestError:
    return IngestError(
        403,
        f"the trial {plan.name} takes devices by invitation alone, and this device has no valid invitation: it is "
        "missing, misspelt, or another device has used it. Get another one from the app's server.",
    )


def _other_arm() -> MessageError:
    return MessageError("the message names another arm than the one that its number was enrolled for.")


def _too_late(plan: Plan) -> TrialEnded:
    return TrialEnded(f"the trial {plan.name} has ended and takes no more of these messages.")
