"""The federated trials of one server: messages to their collectors, and each trial through its stages.

What to do is for ``coordinator.closing`` to say; here it is done. Closing begins in one transaction, after which no
device joins any more. The effects are computed and stored, as for any trial, if no server has committed in between.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from foldaway.effects import Effects
from foldaway.errors import Conflict, FoldawayError, IngestError, TooEarly, TrialClosed
from foldaway.federated.coordinator.closing import CloseRequest, Closing, Course, Extend, Situation, WaitOn, waits_on
from foldaway.federated.messages import Coefficients, Kind, Received, Stage
from foldaway.federated.modes import mode_of, most_bytes
from foldaway.federated.modes.share import Share
from foldaway.federated.replies.integrity import Integrity
from foldaway.plan import Plan
from foldaway.service.collecting.device_collector import DeviceCollector, Outcome
from foldaway.service.database.shard_table import ShardRow, left_out, versions
from foldaway.service.database.store import Store

_ATTEMPTS = 5


class Federated(msgspec.Struct, frozen=True):
    """Who takes part in a trial whose records stay on devices, by arm.

    Attributes:
        mode: What devices send: ``"one-message"``, ``"scores"`` or ``"delta"``.
        stage: ``"open"``, ``"replying"`` while the last reports are waited for, or ``"closed"``.
        enrolled: Devices that have joined.
        reported: Those whose report is durable.
        missing: Those whose report is not.
        deadline: Until when reports count, in seconds since 1970, once the trial is being closed.
        integrity: In mode scores, once it is closed: whether the replies add up to the moments.
        note: Why a closed trial has no effects, if it has none; or that one is heading for none, or waits on for that.
        with_moments: In mode scores, until it is closed: devices whose moments are durable, and so in the coefficients.
    """

    mode: str
    stage: Stage
    enrolled: dict[str, int]
    reported: dict[str, int]
    missing: dict[str, int]
    deadline: float | None = None
    integrity: Integrity | None = None
    note: str | None = None
    with_moments: dict[str, int] | None = None


class FederatedAnswer(NamedTuple):
    """What there is to say about a federated trial."""

    effects: Effects | None
    records: int
    left_out: int
    federated: Federated


@dataclass
class _Held:
    """A trial of which this server has something in memory.

    Attributes:
        collector: What collects its messages.
        waited_on: The deadline after which too few had reported.
        finished: The deadline before which its last remainder was taken here.
    """

    collector: DeviceCollector
    waited_on: float | None = None
    finished: float | None = None


class DeviceTrials:
    """The federated trials, as one server collects them. Not for several threads at once."""

    def __init__(self, store: Store, shard: str) -> None:
        self._store = store
        self._table = store.devices
        self._shard = shard
        self._trials: dict[str, _Held] = {}

    def receive(self, name: str, kind: Kind, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """Take messages in; see ``DeviceCollector.receive``."""
        return self._held(self._plan(name)).collector.receive(kind, bodies)

    def most_bytes(self, name: str) -> int:
        """How long a message of the trial's devices can be."""
        return most_bytes(self._plan(name))

    def receive_site(self, name: str, number: bytes, data: bytes | bytearray) -> Received:
        """Take a site's tallies in."""
        return self._held(self._plan(name)).collector.receive_site(number, data)

    def coefficients(self, name: str) -> Coefficients:
        """What a mode with replies has published.

        Raises:
            TooEarly: The trial is open.
        """
        plan = self._plan(name)
        if not mode_of(plan).replies:
            raise IngestError(409, "this trial publishes no coefficients: its plan is not of the mode scores.")
        stage, closing, *_ = self._look(plan)
        if stage == "closed":  # what was published is gone; a device may still ask whether it was counted
            return Coefficients("closed", 0.0 if closing is None else closing.deadline, b"", [])
        published = None if closing is None else self._held(plan).collector.published()
        if published is None or closing is None:
            raise TooEarly("the coefficients are published when the trial is closed.")
        return published.message(stage, closing.deadline)

    def who(self, plan: Plan) -> Federated:
        """Who takes part."""
        seen = self._look(plan)
        federated = _federated(plan, seen)
        if not mode_of(plan).replies or seen.stage == "closed":
            return federated
        devices = self._whole(plan)[0].devices
        return msgspec.structs.replace(federated, with_moments=dict(zip(plan.arms, devices, strict=True)))

    def so_far(self, plan: Plan) -> FederatedAnswer:
        """The effects so far, from durable shares only.

        Raises:
            TooEarly: Too few devices have reported, or there are no effects before the trial's end: the mode has none,
                or the last reports are waited for, of which fewer than a cohort may be counted.
        """
        seen = self._look(plan)
        federated = _federated(plan, seen)
        if seen.stage == "replying":
            waiting = "the last reports are being waited for; the effects come when the trial has ended."
            raise TooEarly(federated.note or waiting)
        if mode_of(plan).replies:
            raise TooEarly("devices send their scores when the trial is closed; there are no effects before.")
        if (few := Course(plan).too_few_reports(seen.devices.reported)) is not None:
            raise TooEarly(f"no effects yet: {few}.")
        whole, shards = self._whole(plan)
        effects, _ = mode_of(plan).results(whole, seen.devices, None)
        return FederatedAnswer(effects, whole.trial.n, left_out(shards), federated)

    def waiting(self, plan: Plan) -> FederatedAnswer:
        """A trial that waits for reports."""
        shards = self._store.shards.all(plan.name)
        return FederatedAnswer(None, sum(shard.n for shard in shards), left_out(shards), self.who(plan))

    def close(self, plan: Plan, request: CloseRequest, final: Callable[[FederatedAnswer], str]) -> None:
        """Begin to close, or change how long to wait; then move on if there is nothing to wait for.

        Raises:
            IngestError: It would end without effects, and that is not wanted.
        """
        seen = self._look(plan)
        closing = Course(plan).asked(request, seen)
        if closing is not None and seen.stage == "open":
            self._begin(plan, closing)
        elif closing is not None:
            self._table.change_closing(plan.name, closing)
        if (why := self.move_on(plan, final)) is not None:
            raise IngestError(409, waits_on(plan.name, why))

    def _begin(self, plan: Plan, closing: Closing) -> None:
        mode, course = mode_of(plan), Course(plan)
        for attempt in range(_ATTEMPTS):
            collector = self._held(plan).collector
            try:
                # Moments that are no cohort are left out of what is published; reports may still join those here.
                if mode.replies:
                    collector.finish()
                whole, shards = self._whole(plan)
                begun, publish = course.began(closing, whole.devices, collector.pending, time.time())
                published = mode.publish(whole.trial).dumps() if publish else None
                self._table.begin_closing(plan, begun, published, versions(shards))
            except Conflict:  # another server has committed in between, perhaps some of what is pending here
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if mode.replies:
                collector.leave_out_pending()
            return

    def closing(self) -> list[str]:
        """The trials that wait for reports, whichever server they were closed on."""
        return self._table.closings()

    def move_on(self, plan: Plan, final: Callable[[FederatedAnswer], str]) -> str | None:
        """End a trial that is being closed, if its deadline is over or enough devices have reported.

        Returns:
            Why it waits on though its deadline is over, if it does: it would end without effects, which nobody wants.
        """
        for attempt in range(_ATTEMPTS):
            seen, held = self._look(plan), self._trials.get(plan.name)
            waited_on = None if held is None else held.waited_on
            step = Course(plan).looked(seen, lambda: self._whole(plan)[0].devices, waited_on)
            if step is None or seen.closing is None:
                return None
            if isinstance(step, Extend):
                self._table.change_closing(plan.name, step.closing)
                return None
            try:
                why = step.why if isinstance(step, WaitOn) else self._end(plan, final)
            except (Conflict, TrialClosed):  # another server has committed, or closed it, in between
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                if why is None or not seen.is_over:
                    return None
                self._held(plan).waited_on = seen.closing.deadline
                return why
        return None

    def _end(self, plan: Plan, final: Callable[[FederatedAnswer], str]) -> str | None:
        """End it, unless it would have no effects and that is not wanted.

        Returns:
            Why it was not ended, if it was not.
        """
        collector, mode = self._held(plan).collector, mode_of(plan)
        pending = collector.finish()
        published = collector.published()
        whole, shards = self._whole(plan)
        # After the shards: if another server commits in between, their versions are no longer those, and all is done
        # once more. The other way round its reports would be in the tallies, and missing from the counts.
        seen = self._look(plan)
        if seen.stage != "replying":
            return None  # another server has ended it
        step = Course(plan).ends(seen, whole.devices, published is not None)
        if isinstance(step, WaitOn):
            return step.why
        effects, integrity = (None, None) if step.why is not None else mode.results(whole, seen.devices, published)
        federated = msgspec.structs.replace(
            _federated(plan, seen),
            stage="closed",
            integrity=integrity,
            note=None if step.why is None else f"{step.why}.",
        )
        answer = FederatedAnswer(effects, whole.trial.n, left_out(shards) + pending, federated)
        # The moments, less the sum of the replies, are the reply of whoever is missing.
        self._store.close_trial(plan.name, final(answer), versions(shards), wipe=mode.replies)
        collector.leave_out_pending()
        self._trials.pop(plan.name, None)
        return None

    def tick(self) -> list[FoldawayError]:
        """Commit what has waited for as long as its plan allows; let go of trials that were closed elsewhere."""
        faults = []
        for name, held in list(self._trials.items()):
            collector = held.collector
            try:
                seen = self._look(collector.plan)
                deadline = Course(collector.plan).last_call(seen)
                if seen.stage == "closed":
                    collector.leave_out_pending()
                    self._trials.pop(name, None)
                elif deadline is not None and deadline != held.finished:
                    collector.finish()  # the close may be on another server, which does not know what is pending here
                    held.finished = deadline
                else:
                    collector.leave_out_late_moments()
                    collector.commit_if_due()
            except FoldawayError as error:
                faults.append(error)
        return faults

    def pending(self) -> int:
        """Messages of all trials that wait for their cohort."""
        return sum(held.collector.pending for held in self._trials.values())

    def pending_of(self, name: str) -> int:
        """Messages of one trial that wait for their cohort."""
        return self._trials[name].collector.pending if name in self._trials else 0

    def _look(self, plan: Plan) -> Situation:
        """Where a trial stands, now and here."""
        held = self._trials.get(plan.name)
        pending: Counter[str] = Counter() if held is None else held.collector.pending_reports
        return self._table.situation(plan)._replace(pending=pending)

    def _whole(self, plan: Plan) -> tuple[Share, list[ShardRow]]:
        """All servers' shares together, as far as they are durable, and what they were read from."""
        mode, published = mode_of(plan), self._held(plan).collector.published()
        shards = self._store.shards.all(plan.name)
        whole = mode.share(plan)
        for row in shards:
            if row.state is not None:
                whole = whole.merge(mode.share(plan, row.state, published))
        return whole, shards

    def _plan(self, name: str) -> Plan:
        if name in self._trials:
            return self._trials[name].collector.plan
        plan = Plan.loads(self._store.trial(name).plan)
        if plan.federated is None:
            raise IngestError(409, "this trial takes records, not reports of devices: its plan has no `federated`.")
        return plan

    def _held(self, plan: Plan) -> _Held:
        if plan.name not in self._trials:
            self._trials[plan.name] = _Held(DeviceCollector(self._store, plan, self._shard))
        return self._trials[plan.name]


def _federated(plan: Plan, seen: Situation) -> Federated:
    return Federated(
        mode_of(plan).name,
        seen.stage,
        seen.devices.enrolled,
        seen.devices.reported,
        seen.devices.missing,
        None if seen.closing is None else seen.closing.deadline,
        note=Course(plan).outlook(seen),
    )
