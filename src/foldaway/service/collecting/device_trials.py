"""The federated trials of one server: messages to their collectors, what there is to say about each, and its end.

A trial ends in stages, on whichever server somebody asked. What to do is for ``coordinator.ending`` to
say; here it is done. Its end begins in one transaction, after which no device joins any more. The effects are computed
and stored, as for any trial, if no server has committed in between.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import NoneType

import msgspec

from foldaway.auditing.audit import audit
from foldaway.effects import Effects
from foldaway.effects.door import OWN, TOLD
from foldaway.effects.looks import told_at_the_end
from foldaway.effects.looks_taken import Look
from foldaway.effects.read_flow import at_the_end
from foldaway.errors import Conflict, FoldawayError, IngestError, TooEarly, TrialEnded, UnknownTrial, Unreleased
from foldaway.federated.coordinator.ending import (
    Course,
    End,
    Ending,
    EndRequest,
    Situation,
    WaitOn,
    waits_on,
    would_be_without_effects,
)
from foldaway.federated.messages import Closing, Kind, PublishedCoefficients, PublishedSums, Received
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.modes.shares import SumsInShares
from foldaway.federated.replies.published import Published
from foldaway.federated.summands.publishing import why_not
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, too_early
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Candidate, Participation, why_none
from foldaway.service.collecting.device_inbox import DeviceInbox, Outcome
from foldaway.service.collecting.helper_desk import HelperDesk
from foldaway.service.collecting.leader_inbox import LeaderInbox
from foldaway.service.collecting.looking import last_looks, looks_of
from foldaway.service.collecting.pair import Pair, Partner, partner_in
from foldaway.service.database.device_table import write_arrivals
from foldaway.service.database.outages import again_after
from foldaway.service.database.shard_table import ShardRow, left_out, versions
from foldaway.service.database.store import Store
from foldaway.service.database.tables import Change

PAIRED = "pair"
"""The one shard of a trial in mode shares: what two servers add up is in one order, whatever processes a server is."""


class DeviceTrials:
    """The federated trials, as one server collects them. Not for several threads at once.

    Attributes:
        uncounted: Trials that are released with noise: how many messages they have is in no metric.
    """

    def __init__(self, store: Store, shard: str, answers: Answers, pair: Pair | None = None) -> None:
        self._pair = pair
        self._store = store
        self._table = store.devices
        self._shard = shard
        self._answers = answers
        self.uncounted = set[str]()
        self._trials: dict[str, DeviceInbox] = {}  # those of which something is in memory

    def receive(self, name: str, kind: Kind, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """Take messages in; see ``DeviceInbox.receive``."""
        return self.collector(self.plan(name)).receive(kind, bodies)

    def partner(self, plan: Plan) -> Partner | None:
        """This server's part in a trial of two servers; None in any other."""
        return partner_in(self._pair, plan)

    def helped(self, name: str) -> Partner:
        """The part that this server has as the helper of a trial.

        Raises:
            IngestError: It is not.
        """
        partner = self.partner(self.plan(name))
        if partner is None or partner.role != "helper":
            raise IngestError(409, "this server is not the helper of this trial.")
        return partner

    def helper(self, name: str) -> HelperDesk:
        """What answers the leader of a trial."""
        return HelperDesk(self._store, self.plan(name), PAIRED, self._answers, self.helped(name))

    def receive_site(
        self,
        name: str,
        number: bytes,
        data: bytes | bytearray,
        token: str | None = None,
        site: str | None = None,
        sending: int = 1,
    ) -> Received:
        """Take a site's tallies in; see ``DeviceInbox.receive_site``."""
        return self.collector(self.plan(name)).receive_site(number, data, token, site, sending)

    def coefficients(self, name: str) -> PublishedCoefficients:
        """What a mode with replies has published.

        Raises:
            TooEarly: The trial is open.
        """
        plan = self.plan(name)
        if not mode_of(plan).replies:
            raise IngestError(409, "this trial publishes no coefficients: its plan is not of the mode scores.")
        stage, ending, *_ = self.look(plan)
        if stage == "ended":  # what was published is gone; a device may still ask whether it was counted
            return PublishedCoefficients("ended", 0.0 if ending is None else ending.deadline, b"", [])
        published = None if ending is None else self.collector(plan).published()
        if published is None or ending is None:
            raise TooEarly("the coefficients are published when the trial begins to end.")
        return published.message(stage, ending.deadline)

    def who(self, plan: Plan) -> Participation:
        """Who takes part."""
        seen = self.look(plan)
        federated = Participation.of(plan, seen)
        if not mode_of(plan).replies or seen.stage == "ended":
            return federated
        devices = self.whole(plan)[0].devices
        return msgspec.structs.replace(federated, with_moments=dict(zip(plan.arms, devices, strict=True)))

    def so_far(self, plan: Plan) -> Answer:
        """What is told of a trial now.

        Raises:
            TooEarly: Too few devices have reported, or there are no effects before the trial's end: the mode has none,
                or the last reports are waited for, of which fewer than a cohort may be counted.
        """
        seen = self._answerable(plan)
        whole, shards = self.whole(plan)
        looks = self._looks(plan, whole, seen.devices)
        told = self._answers.current(plan, versions(shards), lambda: _candidate(whole, seen.devices, None, looks))
        if told is None:
            raise too_early(plan.privacy)
        return Answer.of(plan, told.effects, round_count(told.records), left_out(shards), Participation.of(plan, seen))

    def exactly(self, plan: Plan) -> Answer:
        """The effects of all that is durable, not rounded, for whoever runs the trial."""
        seen = self._answerable(plan)
        whole, shards = self.whole(plan)
        looks = self._looks(plan, whole, seen.devices)
        effects = replace(mode_of(plan).results(whole, seen.devices, None, OWN)[0], looks=looks)
        return Answer.of(plan, effects, whole.trial.n, left_out(shards), Participation.of(plan, seen))

    def _looks(self, plan: Plan, whole: ServerShare, devices: Devices) -> tuple[Look, ...]:
        """The planned looks that were taken, after the one that is due."""
        return looks_of(self._store, plan, lambda: mode_of(plan).results(whole, devices, None, OWN)[0])

    def _answerable(self, plan: Plan) -> Situation:
        """Where a trial stands, if there can be effects."""
        if plan.release is not None:
            raise Unreleased()
        seen = self.look(plan)
        if seen.stage == "replying":
            waiting = "the last reports are being waited for; the effects come when the trial has ended."
            raise TooEarly(Course(plan).outlook(seen) or waiting)
        if mode_of(plan).replies:
            raise TooEarly("devices send their scores when the trial ends; there are no effects before.")
        if mode_of(plan).two_servers:
            raise TooEarly("the two servers publish their sums when the trial ends; there are no effects before.")
        if (few := Course(plan).too_few_reports(seen.devices)) is not None:
            raise TooEarly(f"no effects yet: {few}.")
        return seen

    def end(self, plan: Plan, request: EndRequest) -> Effects | None:
        """Begin to end, or change how long to wait; then move on if there is nothing to wait for.

        Returns:
            From the call that ended it, its effects as they are before rounding.

        Raises:
            IngestError: Effects would be withheld, and that is not wanted; or this call would not end it, and exact
                effects are asked for.
        """
        if (partner := self.partner(plan)) is not None and partner.role == "helper":
            self._abandon(plan, request)
            return None
        seen, course = self.look(plan), Course(plan)
        ending = course.asked(request, seen)
        if request.exact and seen.stage != "ended":
            course.require_end(seen._replace(ending=ending or seen.ending), lambda: self.whole(plan)[0].devices)
        if ending is not None and seen.stage == "open":
            if seen.now >= ending.deadline and not ending.without_effects:
                self._require_effects(plan)
            self._begin(plan, ending)
        elif ending is not None:
            self._table.change_ending(plan.name, ending)
        ended = self.move_on(plan, give_up=request.without_effects)
        if isinstance(ended, WaitOn):
            raise IngestError(409, waits_on(plan.name, ended.why))
        return ended

    def _abandon(self, plan: Plan, request: EndRequest) -> None:
        """End the helper's part without the leader, which can then have no effects."""
        if self.look(plan).stage != "ended":
            if not request.without_effects:
                raise IngestError(
                    409,
                    "nothing was changed: this server is the helper, and the trial ends where its leader is. To "
                    "destroy what is here, so that there will be no effects: foldaway end "
                    f"{plan.name} --without-effects.",
                )
            self.helper(plan.name).abandon()

    @again_after(Conflict)  # another server has committed
    def _require_effects(self, plan: Plan) -> None:
        """Refuse to begin an end at once that would leave no effects, for whatever reason.

        Raises:
            IngestError: It would; nothing was changed.
        """
        mode = mode_of(plan)
        if plan.release is not None or mode.replies:  # noise decides that, or what devices will reply
            return
        if mode.two_servers:
            if (few := self._unpublished(plan)) is not None:
                raise would_be_without_effects(plan.name, few, federated=True)
            return
        seen, (whole, _) = self.look(plan), self.whole(plan, pending=True)
        devices = seen.devices.with_reports(seen.pending, seen.out)
        told, _ = self._answers.final(plan, _candidate(whole, devices, None))
        if (why := why_none(plan, told)) is not None:
            raise would_be_without_effects(plan.name, why.rstrip("."), federated=True)

    def _unpublished(self, plan: Plan) -> str | None:
        """Why the leader of two servers may not publish its sums, from its own counts of reports."""
        inbox = self.collector(plan)
        return why_not(plan, inbox.account.live.settled().split) if isinstance(inbox, LeaderInbox) else None

    @again_after(Conflict)  # another server has committed, perhaps some of what is pending here
    def _begin(self, plan: Plan, ending: Ending) -> None:
        mode, collector = mode_of(plan), self.collector(plan)
        # Moments that are no cohort are left out of what is published; reports may still join those here.
        if mode.replies:
            collector.leave_out_late_moments()
            collector.commit_if_due()
        whole, shards = self.whole(plan)
        begun, publish = Course(plan).began(ending, whole.devices, collector.pending, time.time())
        published = Published.of(whole.trial).dumps() if publish else None
        self._table.begin_ending(plan, begun, published, versions(shards))
        if mode.replies:
            collector.leave_out_pending()

    @again_after(Conflict, TrialEnded)  # another server has committed, or ended it
    def move_on(self, plan: Plan, *, give_up: bool = False) -> Effects | WaitOn | None:
        """End a trial that is ending, if its deadline is over or enough devices have reported.

        Args:
            plan: The trial's plan.
            give_up: Whether to end it without effects if the helper of mode shares is not there.

        Returns:
            Its effects before rounding, if this has ended it with some; or why it waits on though its deadline is over:
            it would end without effects, which nobody wants.
        """
        seen = self.look(plan)
        step = Course(plan).looked(seen, lambda: self.whole(plan)[0].devices)
        if step is None or seen.ending is None:
            return None
        ended = step if isinstance(step, WaitOn) else self._end(plan, give_up=give_up)
        return None if isinstance(ended, WaitOn) and not seen.is_over else ended

    def _end(self, plan: Plan, *, give_up: bool) -> Effects | WaitOn | None:
        """End it, unless it would have no effects and that is not wanted.

        Returns:
            Its effects before rounding, if it has some; or why it was not ended.
        """
        collector, mode = self.collector(plan), mode_of(plan)
        collector.leave_out_late_moments()
        published = collector.published()
        why_not_both: str | None = None
        if isinstance(collector, LeaderInbox):
            wanted = (ending := self.look(plan).ending) is not None and ending.without_effects
            why_not_both = self._unpublished(plan)
            if why_not_both is not None and not wanted:
                return WaitOn(why_not_both)
            why_not_both = why_not_both or finished(collector, give_up=give_up)
            collector.leave_out_pending()
        whole, shards = self.whole(plan, pending=not mode.two_servers)
        # After the shards: if another server commits in between, their versions are no longer those, and all is done
        # once more. The other way round its reports would be in the tallies, and missing from the counts.
        seen = self.look(plan)
        if seen.stage != "replying":
            return None  # another server has ended it
        devices = seen.devices.with_reports(seen.pending, seen.out)
        seen = seen._replace(devices=devices, pending=Counter(), out={})
        step = Course(plan).ends(seen, whole.devices, published is not None)
        if step == End() and why_not_both is not None:
            step = End(why_not_both)
        if isinstance(step, WaitOn):
            return step
        if (partner := self.partner(plan)) is not None:
            try:
                whole = closed(partner, whole, publish=step.why is None)
            except FoldawayError as error:
                if not give_up:
                    raise
                step = End(str(error).rstrip("."))
        audited = audit(plan, mode.held(whole)) if plan.release is None else None
        if plan.release is not None:
            whole = whole.copy()
            whole.own.conclude()  # noise is drawn once: what is told is stored in the transaction that ends
        exact, integrity = None, None
        if step.why is None:
            exact, integrity = mode.results(whole, seen.devices, published, OWN)
        also: list[Change] = [
            partial(write_arrivals, trial=plan.name, arrivals=collector.arrivals, shard=collector.shard)
        ]
        effects, records, late = None, whole.trial.n, 0
        if exact is not None:
            now = exact
            looks, unless_looked = last_looks(self._store, plan, lambda: now)
            exact = replace(exact, looks=looks)
            candidate = _candidate(whole, seen.devices, published, looks)
            told, unless_told = self._answers.final(plan, candidate)
            final = mode.two_servers or (seen.ending is not None and seen.ending.without_effects)
            if (why := why_none(plan, told)) is not None and not final:
                return WaitOn(why.rstrip("."))
            effects = None if told is None else replace(told.effects, looks=told_at_the_end(told.effects, looks))
            if effects is not None and effects.flow is not None and told is not None and told.records == records:
                effects = at_the_end(effects, exact)
            also += [unless_told, unless_looked]
            if told is not None and plan.release is None:  # an earlier answer, if fewer than a cohort have come since
                records, late = told.records, candidate.census.moved - told.behind
        note = None if step.why is None else f"{step.why}."
        federated = msgspec.structs.replace(Participation.of(plan, seen), stage="ended", integrity=integrity, note=note)
        lost = None if plan.release is not None else left_out(shards) + TOLD.devices(late)
        answer = Answer.of(plan, effects, round_count(records), lost, federated, final=True)
        ended = self._answers.end(answer, audited, shards, also)
        self._trials.pop(plan.name, None)
        return exact if ended.final == answer.dumps() else None  # another server may have been faster

    def end_due(self) -> list[FoldawayError]:
        """Move those on that are ending."""
        faults = []
        for name in self._table.endings():
            try:
                self.move_on(self.plan(name))
            except FoldawayError as error:
                faults.append(error)
        return faults

    @property
    def names(self) -> list[str]:
        """The trials of which something is in memory."""
        return list(self._trials)

    def tick(self, name: str) -> list[FoldawayError]:
        """Commit what has waited long enough; let go of a trial that ended elsewhere."""
        collector = self._trials.get(name)
        if collector is None:  # it ended just now
            return []
        try:
            if self.look(collector.plan).stage == "ended":
                collector.leave_out_pending()
                del self._trials[name]
            else:
                collector.leave_out_late_moments()
                collector.commit_if_due()
        except UnknownTrial:  # it ended and removed elsewhere
            del self._trials[name]
        except FoldawayError as error:
            return [error]
        return []

    def pending(self, name: str | None = None) -> int:
        """Messages of all trials, or of one, that wait for their cohort."""
        return sum(collector.pending for of, collector in self._trials.items() if name in (None, of))

    def look(self, plan: Plan) -> Situation:
        """Where a trial stands, now and here."""
        here = self._trials.get(plan.name)
        seen = self._table.situation(plan)
        if here is None:
            return seen
        return seen._replace(pending=Counter(here.arrivals.reported), out=Counter(here.arrivals.withdrawn))

    def whole(self, plan: Plan, *, pending: bool = False) -> tuple[ServerShare, list[ShardRow]]:
        """All servers' shares together, as far as they are durable or, if that counts, pending here; and their rows.

        Raises:
            Conflict: This server's share is no longer the one that what is pending was built upon.
        """
        collector = self.collector(plan)
        published = collector.published()
        shards = self._store.shards.all(plan.name)
        whole = collector.live(shards) if pending else ServerShare.of(plan)
        for row in shards:
            if row.state is not None and not (pending and row.shard == collector.shard):
                whole = whole.merge(ServerShare.of(plan, row.state, published))
        return whole.settled(), shards

    def plan(self, name: str) -> Plan:
        """The plan of a federated trial."""
        if name in self._trials:
            return self._trials[name].plan
        plan = Plan.loads(self._store.trial(name).plan)
        if plan.federated is None:
            raise IngestError(409, "this trial takes records, not reports of devices: its plan has no `federated`.")
        return plan

    def collector(self, plan: Plan) -> DeviceInbox:
        """This server's share of a trial."""
        if plan.name not in self._trials:
            self._trials[plan.name] = self._inbox(plan)
            if plan.release is not None:
                self.uncounted.add(plan.name)
        return self._trials[plan.name]

    def _inbox(self, plan: Plan) -> DeviceInbox:
        if (partner := self.partner(plan)) is None:
            return DeviceInbox(self._store, plan, self._shard, self._answers.pace)
        if partner.role == "helper":
            assert plan.federated is not None
            leader = plan.federated.pair[0].url
            raise IngestError(409, f"this server is the helper of the trial: devices send to its leader, at {leader}.")
        return LeaderInbox(self._store, plan, PAIRED, self._answers.pace, partner)


def finished(inbox: LeaderInbox, *, give_up: bool) -> str | None:
    """Have the helper add up what still waits; why it does not, if the trial is to end all the same."""
    try:
        inbox.finish()
    except FoldawayError as error:
        if not give_up:
            raise
        return str(error).rstrip(".")
    return None


def closed(partner: Partner, share: ServerShare, *, publish: bool) -> ServerShare:
    """What the leader's sums and those that the helper publishes come to; without them, what there is."""
    mode, closing = mode_of(share.plan), Closing(share.split.batch, share.split.digest, publish)
    if not publish:
        with suppress(FoldawayError):  # then the helper's administrator ends it there
            partner.ask("closing", closing, NoneType)
        return share
    assert isinstance(mode, SumsInShares)
    return mode.joined(share, partner.ask("closing", closing, PublishedSums))


def _candidate(
    share: ServerShare, devices: Devices, published: Published | None, looks: Sequence[Look] = ()
) -> Candidate:
    """What could be told of a federated trial: every device is a unit."""
    plan = share.plan
    gone = {arm: n for arm, n in devices.withdrawn.items() if n}
    census = Census({arm: [devices.reported[arm]] for arm in plan.arms}, gone=gone)
    said = [each.told() for each in looks]
    return Candidate(
        share.trial.n, census, lambda: replace(mode_of(plan).results(share, devices, published)[0], looks=said)
    )
