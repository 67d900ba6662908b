"""The federated trials of one server: messages to their collectors, and each trial through its stages.

open → replying → closed. Closing begins in one transaction, after which no device joins any more; in mode scores it
publishes what devices reply to. Reports count until the deadline, or until enough devices have reported. Then the
effects are computed and stored, as for any trial, if no server has committed in between.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from foldaway.effects import Effects
from foldaway.errors import Conflict, FoldawayError, IngestError, TooEarly, TrialClosed
from foldaway.federated.coordinator.closing import Closing, Wanted, waits_on, would_be_without_effects
from foldaway.federated.coordinator.integrity import Integrity
from foldaway.federated.coordinator.limits import most_bytes
from foldaway.federated.coordinator.results import results
from foldaway.federated.coordinator.share import Published, Share
from foldaway.federated.messages import Coefficients, Received, Stage
from foldaway.keeping import cohort
from foldaway.plan import Plan
from foldaway.service.collecting.device_collector import DeviceCollector, Kind, Outcome
from foldaway.service.database.device_table import Standing
from foldaway.service.database.rows import ShardRow, left_out, versions
from foldaway.service.database.store import Store

_ATTEMPTS = 5

# How long before its deadline a trial takes what is no cohort: servers look at their trials every second.
_LAST_SECONDS = 3.0

# 0.55 of 100 devices is 55.00000000000001 of them.
_ROUNDING = 1e-12


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


class Found(NamedTuple):
    """What there is to say about a federated trial."""

    effects: Effects | None
    records: int
    left_out: int
    federated: Federated


class DeviceTrials:
    """The federated trials, as one server collects them. Not for several threads at once."""

    def __init__(self, store: Store, shard: str) -> None:
        self._store = store
        self._shard = shard
        self._collectors: dict[str, DeviceCollector] = {}
        self._waits_on: dict[str, float] = {}  # trials that too few had reported to at this deadline
        self._finished: dict[str, float] = {}  # trials whose last remainder was taken here, and before which deadline

    def receive(self, name: str, kind: Kind, bodies: Sequence[bytes | bytearray]) -> list[Outcome]:
        """Take messages in; see ``DeviceCollector.receive``."""
        return self._collector(self._plan(name)).receive(kind, bodies)

    def most_bytes(self, name: str) -> int:
        """How long a message of the trial's devices can be."""
        return most_bytes(self._plan(name))

    def receive_site(self, name: str, number: bytes, data: bytes | bytearray) -> Received:
        """Take a site's tallies in."""
        return self._collector(self._plan(name)).receive_site(number, data)

    def coefficients(self, name: str) -> Coefficients:
        """What mode scores has published.

        Raises:
            TooEarly: The trial is open.
        """
        plan = self._plan(name)
        if plan.mode != "scores":
            raise IngestError(409, "this trial publishes no coefficients: its plan is not of the mode scores.")
        standing = self._store.devices.standing(plan)
        if standing.stage == "closed":  # what was published is gone; a device may still ask whether it was counted
            return Coefficients("closed", 0.0 if standing.closing is None else standing.closing.deadline, b"", [])
        published = None if standing.closing is None else self._collector(plan).published()
        if published is None or standing.closing is None:
            raise TooEarly("the coefficients are published when the trial is closed.")
        return published.message(standing.stage, standing.closing.deadline)

    def who(self, plan: Plan) -> Federated:
        """Who takes part."""
        standing = self._store.devices.standing(plan)
        federated = _federated(plan, standing)
        if plan.mode != "scores" or standing.stage == "closed":
            return federated
        devices = self._whole(plan)[0].devices
        return msgspec.structs.replace(federated, with_moments=dict(zip(plan.arms, devices, strict=True)))

    def found(self, plan: Plan) -> Found:
        """The effects so far, from durable shares only.

        Raises:
            TooEarly: Too few devices have reported, or there are no effects before the trial's end: the mode has none,
                or the last reports are waited for, of which fewer than a cohort may be counted.
        """
        standing = self._store.devices.standing(plan)
        if standing.stage == "replying":
            waiting = "the last reports are being waited for; the effects come when the trial has ended."
            raise TooEarly(_federated(plan, standing).note or waiting)
        if plan.mode == "scores":
            raise TooEarly("devices send their scores when the trial is closed; there are no effects before.")
        if (few := _too_few_reports(plan, standing.devices.reported)) is not None:
            raise TooEarly(f"no effects yet: {few}.")
        whole, shards = self._whole(plan)
        effects, _ = results(plan, whole, standing.devices)
        return Found(effects, whole.trial.n, left_out(shards), _federated(plan, standing))

    def waiting(self, plan: Plan) -> Found:
        """A trial that waits for reports."""
        shards = self._store.shards(plan.name)
        return Found(None, sum(shard.n for shard in shards), left_out(shards), self.who(plan))

    def close(self, plan: Plan, wanted: Wanted, final: Callable[[Found], str]) -> None:
        """Begin to close, or change how long to wait; then move on if there is nothing to wait for.

        Raises:
            IngestError: It would end without effects, and that is not wanted.
        """
        standing = self._store.devices.standing(plan)
        if standing.stage == "open":
            closing = Closing.begun(plan, wanted)
            self._require_hope(plan, standing, closing)
            self._begin(plan, closing)
        elif standing.stage == "replying" and standing.closing is not None and wanted.changes:
            closing = standing.closing.changed(wanted)
            self._require_hope(plan, standing, closing)
            self._store.devices.change_closing(plan.name, closing)
        if (why := self.move_on(plan, final)) is not None:
            raise IngestError(409, waits_on(plan.name, why))

    def _require_hope(self, plan: Plan, standing: Standing, closing: Closing) -> None:
        """Refuse to end a trial of which even the best that can still come gives no effects."""
        if closing.without_effects:
            return
        if plan.mode == "scores" and standing.stage == "open":
            if closing.is_over:
                raise would_be_without_effects(
                    plan.name, "its devices reply once it is being closed, and that takes time", federated=True
                )
            return  # whether it can begin is seen from the moments
        if closing.is_over:
            reported, more = self._countable(plan, standing), ""
        else:
            reported, more = self._hoped_for(plan, standing), ", with all that can still come"
        if (few := _too_few_reports(plan, reported)) is not None:
            pending = self._collector(plan).pending_reports.total()
            waiting = f"{pending:,} reports wait here for others to make up a cohort of {plan.privacy.cohort:,}"
            raise would_be_without_effects(plan.name, f"{few}{more}. {waiting}", federated=closing.is_over)

    def _hoped_for(self, plan: Plan, standing: Standing) -> Counter[str]:
        """The reports, by arm, if every enrolled device still sends its own."""
        reported, enrolled = Counter(standing.devices.reported), Counter(standing.devices.enrolled)
        return reported | enrolled if cohort.can_ever_count(plan.privacy, (enrolled - reported).total()) else reported

    def _countable(self, plan: Plan, standing: Standing) -> Counter[str]:
        """The reports, by arm, that would be in the trial if it ended now."""
        reported, pending = Counter(standing.devices.reported), self._collector(plan).pending_reports
        return reported + pending if cohort.counts_at_end(plan.privacy, pending.total()) else reported

    def _begin(self, plan: Plan, closing: Closing) -> None:
        for attempt in range(_ATTEMPTS):
            collector = self._collector(plan)
            try:
                # In mode scores moments that are no cohort are left out; otherwise reports may still join those here.
                if plan.mode == "scores":
                    collector.finish()
                whole, shards = self._whole(plan)
                published = None
                if plan.mode == "scores":
                    few = _too_few_moments(plan, whole)
                    if few is None:
                        published = Published.of(whole.trial).dumps()
                    elif not closing.without_effects:
                        waiting = f"{collector.pending:,} messages wait here for others to make up a cohort"
                        raise would_be_without_effects(plan.name, f"{few}. {waiting}")
                    else:  # nothing is published, so there is nothing to wait for
                        closing = closing._replace(deadline=time.time())
                self._store.devices.begin_closing(plan, closing, published, versions(shards))
            except Conflict:  # another server has committed in between, perhaps some of what is pending here
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if plan.mode == "scores":
                collector.leave_out_pending()
            return

    def closing(self) -> list[str]:
        """The trials that wait for reports, whichever server they were closed on."""
        return self._store.devices.closings()

    def move_on(self, plan: Plan, final: Callable[[Found], str]) -> str | None:
        """End a trial that is being closed, if its deadline is over or enough devices have reported.

        Returns:
            Why it waits on though its deadline is over, if it does: it would end without effects, which nobody wants.
        """
        for attempt in range(_ATTEMPTS):
            standing = self._store.devices.standing(plan)
            closing = standing.closing
            if standing.stage != "replying" or closing is None or not self._enough(plan, standing, closing):
                return None
            if self._ends_after_all(plan, standing, closing):
                return None
            try:
                why = self._end(plan, closing, final)
            except (Conflict, TrialClosed):  # another server has committed, or closed it, in between
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                if why is None or not closing.is_over:
                    return None
                self._waits_on[plan.name] = closing.deadline
                return why
        return None

    def _ends_after_all(self, plan: Plan, standing: Standing, closing: Closing) -> bool:
        """Whether a trial that waited on has enough now, and other servers get a moment to commit their remainders."""
        waited = self._waits_on.get(plan.name) == closing.deadline and cohort.includes_remainder(plan.privacy)
        if not waited or closing.without_effects or _too_few_reports(plan, self._countable(plan, standing)) is not None:
            return False
        self._store.devices.change_closing(plan.name, closing._replace(deadline=time.time() + _LAST_SECONDS))
        return True

    def _enough(self, plan: Plan, standing: Standing, closing: Closing) -> bool:
        devices = standing.devices
        here = self._collectors.get(plan.name)
        reported = sum(devices.reported.values())
        if here is not None and cohort.includes_remainder(plan.privacy):  # otherwise the end leaves them out
            reported += here.pending_reports.total()
        if closing.is_over:
            return True
        awaited = self._awaited(plan, standing)
        return awaited > 0 and reported >= closing.share * awaited * (1 - _ROUNDING)

    def _awaited(self, plan: Plan, standing: Standing) -> int:
        """The devices that can report: in mode scores, those whose records are in the coefficients."""
        enrolled = sum(standing.devices.enrolled.values())
        if plan.mode != "scores":
            return enrolled
        return min(enrolled, sum(self._whole(plan)[0].devices))

    def _end(self, plan: Plan, closing: Closing, final: Callable[[Found], str]) -> str | None:
        """End it, unless it would have no effects and that is not wanted.

        Returns:
            Why it was not ended, if it was not.
        """
        collector = self._collector(plan)
        few = _too_few_reports(plan, self._countable(plan, self._store.devices.standing(plan)))
        if few is not None and not closing.without_effects:
            return few  # before anything is committed that is no cohort
        pending = collector.finish()
        published = collector.published()
        whole, shards = self._whole(plan)
        # After the shards: if another server commits in between, their versions are no longer those, and all is done
        # once more. The other way round its reports would be in the tallies, and missing from the counts.
        standing = self._store.devices.standing(plan)
        if standing.stage != "replying" or standing.closing is None:
            return None  # another server has ended it
        why = _too_few_reports(plan, standing.devices.reported)
        if plan.mode == "scores" and published is None:
            why = _too_few_moments(plan, whole) or "nothing was published to devices"
        if why is not None and not standing.closing.without_effects:
            return why
        effects, integrity = (None, None) if why is not None else results(plan, whole, standing.devices, published)
        note = None if why is None else f"{why}."
        federated = msgspec.structs.replace(_federated(plan, standing), stage="closed", integrity=integrity, note=note)
        found = Found(effects, whole.trial.n, left_out(shards) + pending, federated)
        # In mode scores the moments, less the sum of the replies, are the reply of whoever is missing.
        self._store.close_trial(plan.name, final(found), versions(shards), wipe=plan.mode == "scores")
        collector.leave_out_pending()
        self._let_go(plan.name)
        return None

    def _let_go(self, name: str) -> None:
        self._collectors.pop(name, None)
        self._finished.pop(name, None)
        self._waits_on.pop(name, None)

    def tick(self) -> list[FoldawayError]:
        """Commit what has waited for as long as its plan allows; let go of trials that were closed elsewhere."""
        faults = []
        for name, collector in list(self._collectors.items()):
            try:
                standing = self._store.devices.standing(collector.plan)
                deadline = _last_deadline(collector.plan, standing)
                if standing.stage == "closed":
                    collector.leave_out_pending()
                    self._let_go(name)
                elif deadline is not None and deadline != self._finished.get(name):
                    collector.finish()  # the close may be on another server, which does not know what is pending here
                    self._finished[name] = deadline
                else:
                    collector.leave_out_late_moments()
                    collector.commit_if_due()
            except FoldawayError as error:
                faults.append(error)
        return faults

    def pending(self) -> int:
        """Messages of all trials that wait for their cohort."""
        return sum(collector.pending for collector in self._collectors.values())

    def pending_of(self, name: str) -> int:
        """Messages of one trial that wait for their cohort."""
        return self._collectors[name].pending if name in self._collectors else 0

    def _whole(self, plan: Plan) -> tuple[Share, list[ShardRow]]:
        """All servers' shares together, as far as they are durable, and what they were read from."""
        published = self._collector(plan).published()
        shards = self._store.shards(plan.name)
        whole = Share(plan)
        for row in shards:
            if row.state is not None:
                whole = whole.merge(Share.loads(row.state, plan, published))
        return whole, shards

    def _plan(self, name: str) -> Plan:
        if name in self._collectors:
            return self._collectors[name].plan
        plan = Plan.loads(self._store.trial(name).plan)
        if plan.federated is None:
            raise IngestError(409, "this trial takes records, not reports of devices: its plan has no `federated`.")
        return plan

    def _collector(self, plan: Plan) -> DeviceCollector:
        if plan.name not in self._collectors:
            self._collectors[plan.name] = DeviceCollector(self._store, plan, self._shard)
        return self._collectors[plan.name]


def _too_few_reports(plan: Plan, reported: Mapping[str, int]) -> str | None:
    """Why so many reports give no effects, if they do not."""
    few = cohort.too_few_to_answer(plan.privacy, {arm: reported[arm] for arm in plan.arms})
    if not few:
        return None
    arm = min(few, key=few.__getitem__)
    least = f"every arm needs durable reports of {plan.privacy.min_per_arm:,} devices (the plan's min_per_arm)"
    return f"{least}, and {arm} has {few[arm]:,}"


def _too_few_moments(plan: Plan, whole: Share) -> str | None:
    """Why an arm's moments may not be published to devices: they would be those of a few."""
    few = cohort.too_few_to_publish(plan.privacy, dict(zip(plan.arms, whole.devices, strict=True)))
    for arm, devices in few.items():
        least = f"moments of {cohort.least_to_publish(plan.privacy):,} of them (the plan's cohort, and min_per_arm)"
        return f"before anything is published to devices, every arm needs {least}, and {arm} has {devices:,}"
    return None


def _last_deadline(plan: Plan, standing: Standing) -> float | None:
    """The deadline before which to commit a remainder that is no cohort, once, now that it has nearly come."""
    if not cohort.includes_remainder(plan.privacy) or standing.stage != "replying" or standing.closing is None:
        return None
    deadline = standing.closing.deadline
    return deadline if abs(time.time() - deadline) <= _LAST_SECONDS else None


def _federated(plan: Plan, standing: Standing) -> Federated:
    devices, closing = standing.devices, standing.closing
    return Federated(
        plan.mode or "",
        standing.stage,
        devices.enrolled,
        devices.reported,
        devices.missing,
        None if closing is None else closing.deadline,
        note=_outlook(plan, standing) if standing.stage == "replying" else None,
    )


def _outlook(plan: Plan, standing: Standing) -> str | None:
    """What a trial that waits for reports is heading for, if that is no effects."""
    closing = standing.closing
    few = _too_few_reports(plan, standing.devices.reported)
    if closing is None or few is None:
        return None
    if closing.without_effects:
        return f"as was asked for, the trial will end at its deadline even without effects, and as yet {few}."
    return waits_on(plan.name, few) if closing.is_over else None
