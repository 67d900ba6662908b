"""The federated trials of one server: messages to their collectors, and what there is to say about each trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from foldaway.errors import FoldawayError, IngestError, TooEarly
from foldaway.federated.coordinator.closing import Course, Situation
from foldaway.federated.messages import Coefficients, Kind, Received
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, Share
from foldaway.federated.replies.published import Published
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, too_early
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Candidate, Federated
from foldaway.service.collecting.device_collector import DeviceCollector, Outcome
from foldaway.service.database.shard_table import ShardRow, left_out, mark
from foldaway.service.database.store import Store


class DeviceTrials:
    """The federated trials, as one server collects them. Not for several threads at once."""

    def __init__(self, store: Store, shard: str, answers: Answers) -> None:
        self.store = store
        self._table = store.devices
        self._shard = shard
        self.answers = answers
        self._trials: dict[str, DeviceCollector] = {}  # those of which something is in memory

    def receive(self, name: str, kind: Kind, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """Take messages in; see ``DeviceCollector.receive``."""
        return self.collector(self.plan(name)).receive(kind, bodies)

    def receive_site(self, name: str, number: bytes, data: bytes | bytearray) -> Received:
        """Take a site's tallies in."""
        return self.collector(self.plan(name)).receive_site(number, data)

    def coefficients(self, name: str) -> Coefficients:
        """What a mode with replies has published.

        Raises:
            TooEarly: The trial is open.
        """
        plan = self.plan(name)
        if not mode_of(plan).replies:
            raise IngestError(409, "this trial publishes no coefficients: its plan is not of the mode scores.")
        stage, closing, *_ = self.look(plan)
        if stage == "closed":  # what was published is gone; a device may still ask whether it was counted
            return Coefficients("closed", 0.0 if closing is None else closing.deadline, b"", [])
        published = None if closing is None else self.collector(plan).published()
        if published is None or closing is None:
            raise TooEarly("the coefficients are published when the trial is closed.")
        return published.message(stage, closing.deadline)

    def who(self, plan: Plan) -> Federated:
        """Who takes part."""
        seen = self.look(plan)
        federated = Federated.of(plan, seen)
        if not mode_of(plan).replies or seen.stage == "closed":
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
        told = self.answers.current(plan, mark(shards), lambda: candidate(whole, seen.devices, None))
        if told is None:
            raise too_early(plan.privacy)
        return Answer.of(plan, told.effects, round_count(told.records), left_out(shards), Federated.of(plan, seen))

    def exactly(self, plan: Plan) -> Answer:
        """The effects of all that is durable, not rounded, for whoever runs the trial."""
        seen = self._answerable(plan)
        whole, shards = self.whole(plan)
        effects, _ = mode_of(plan).results(whole, seen.devices, None, rounded=False)
        return Answer.of(plan, effects, whole.trial.n, left_out(shards), Federated.of(plan, seen))

    def _answerable(self, plan: Plan) -> Situation:
        """Where a trial stands, if there can be effects."""
        seen = self.look(plan)
        if seen.stage == "replying":
            waiting = "the last reports are being waited for; the effects come when the trial has ended."
            raise TooEarly(Course(plan).outlook(seen) or waiting)
        if mode_of(plan).replies:
            raise TooEarly("devices send their scores when the trial is closed; there are no effects before.")
        if (few := Course(plan).too_few_reports(seen.devices.reported)) is not None:
            raise TooEarly(f"no effects yet: {few}.")
        return seen

    def tick(self) -> list[FoldawayError]:
        """Commit what could not be committed before; let go of trials that were closed elsewhere."""
        faults = []
        for name, collector in list(self._trials.items()):
            try:
                seen = self.look(collector.plan)
                if seen.stage == "closed":
                    collector.leave_out_pending()
                    self.let_go(name)
                else:
                    collector.leave_out_late_moments()
                    collector.commit_if_due()
            except FoldawayError as error:
                faults.append(error)
        return faults

    def pending(self, name: str | None = None) -> int:
        """Messages of all trials, or of one, that wait for their cohort."""
        return sum(collector.pending for of, collector in self._trials.items() if name in (None, of))

    def let_go(self, name: str) -> None:
        """Keep nothing more of a trial that has ended."""
        self._trials.pop(name, None)

    def look(self, plan: Plan) -> Situation:
        """Where a trial stands, now and here."""
        pending = self._trials[plan.name].pending_reports if plan.name in self._trials else Counter[str]()
        return self._table.situation(plan)._replace(pending=pending)

    def whole(self, plan: Plan, *, pending: bool = False) -> tuple[Share, list[ShardRow]]:
        """All servers' shares together, as far as they are durable, and what they were read from.

        Args:
            plan: The trial's plan.
            pending: Whether what is pending here counts.

        Raises:
            Conflict: This server's share is no longer the one that what is pending was built upon.
        """
        collector = self.collector(plan)
        published = collector.published()
        shards = self.store.shards.all(plan.name)
        whole = collector.live(shards) if pending else Share.of(plan)
        for row in shards:
            if row.state is not None and not (pending and row.shard == self._shard):
                whole = whole.merge(Share.of(plan, row.state, published))
        return whole, shards

    def plan(self, name: str) -> Plan:
        """The plan of a federated trial."""
        if name in self._trials:
            return self._trials[name].plan
        plan = Plan.loads(self.store.trial(name).plan)
        if plan.federated is None:
            raise IngestError(409, "this trial takes records, not reports of devices: its plan has no `federated`.")
        return plan

    def collector(self, plan: Plan) -> DeviceCollector:
        """This server's share of a trial."""
        if plan.name not in self._trials:
            self._trials[plan.name] = DeviceCollector(self.store, plan, self._shard)
        return self._trials[plan.name]


def candidate(share: Share, devices: Devices, published: Published | None) -> Candidate:
    """What could be told of a federated trial: every device is a unit."""
    plan = share.plan
    census = Census({arm: [devices.reported[arm]] for arm in plan.arms})
    return Candidate(share.trial.n, census, lambda: mode_of(plan).results(share, devices, published)[0])
