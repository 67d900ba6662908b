"""The federated trials of one server: messages to their collectors, and what there is to say about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from foldaway.effects.door import OWN
from foldaway.effects.looks_taken import Look
from foldaway.errors import FoldawayError, IngestError, TooEarly, UnknownTrial, Unreleased
from foldaway.federated.coordinator.ending import Course, Situation
from foldaway.federated.messages import Kind, PublishedCoefficients, Received
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.replies.published import Published
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, too_early
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Candidate, Participation
from foldaway.service.collecting.device_inbox import DeviceInbox, Outcome
from foldaway.service.collecting.helper_desk import HelperDesk
from foldaway.service.collecting.leader_inbox import LeaderInbox
from foldaway.service.collecting.looking import looks_of
from foldaway.service.collecting.pair import Pair, Partner, partner_in
from foldaway.service.database.shard_table import ShardRow, left_out, versions
from foldaway.service.database.store import Store

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
        told = self._answers.current(plan, versions(shards), lambda: candidate_of(whole, seen.devices, None, looks))
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
        results = mode_of(plan).results
        return looks_of(self._store, plan, lambda: results(whole, devices, None, OWN)[0], sum(whole.devices))

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
                self.let_go(name)
            else:
                collector.leave_out_late_moments()
                collector.commit_if_due()
        except UnknownTrial:  # it ended and removed elsewhere
            self.let_go(name)
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

    def let_go(self, name: str) -> None:
        """Have nothing of a trial in memory any more: it has ended."""
        self._trials.pop(name, None)

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


def candidate_of(
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
