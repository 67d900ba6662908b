"""Federated trials that are being closed: each through its stages, on whichever server somebody asked.

What to do is for ``coordinator.closing`` to say; here it is done. Closing begins in one transaction, after which no
device joins any more. The effects are computed and stored, as for any trial, if no server has committed in between.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

import msgspec

from foldaway.auditing.audit import audit
from foldaway.errors import Conflict, IngestError, TrialClosed
from foldaway.federated.coordinator.closing import CloseRequest, Closing, Course, WaitOn, waits_on
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import about
from foldaway.federated.replies.published import Published
from foldaway.inference.rounding import round_count
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Federated
from foldaway.service.collecting.device_trials import DeviceTrials, candidate
from foldaway.service.database.device_table import write_arrivals
from foldaway.service.database.outages import again_after
from foldaway.service.database.shard_table import left_out, versions
from foldaway.service.database.tables import Change


class DeviceClosings:
    """Closes the federated trials of one server. Not for several threads at once."""

    def __init__(self, trials: DeviceTrials) -> None:
        self._trials = trials
        self._table = trials.store.devices

    def close(self, plan: Plan, request: CloseRequest) -> None:
        """Begin to close, or change how long to wait; then move on if there is nothing to wait for.

        Raises:
            IngestError: It would end without effects, and that is not wanted.
        """
        seen = self._trials.look(plan)
        closing = Course(plan).asked(request, seen)
        if closing is not None and seen.stage == "open":
            self._begin(plan, closing)
        elif closing is not None:
            self._table.change_closing(plan.name, closing)
        if (why := self.move_on(plan)) is not None:
            raise IngestError(409, waits_on(plan.name, why))

    @again_after(Conflict)  # another server has committed, perhaps some of what is pending here
    def _begin(self, plan: Plan, closing: Closing) -> None:
        mode, collector = mode_of(plan), self._trials.collector(plan)
        # Moments that are no cohort are left out of what is published; reports may still join those here.
        if mode.replies:
            collector.leave_out_late_moments()
            collector.commit_if_due()
        whole, shards = self._trials.whole(plan)
        begun, publish = Course(plan).began(closing, whole.devices, collector.pending, time.time())
        published = Published.of(whole.trial).dumps() if publish else None
        self._table.begin_closing(plan, begun, published, versions(shards))
        if mode.replies:
            collector.leave_out_pending()

    @again_after(Conflict, TrialClosed)  # another server has committed, or closed it
    def move_on(self, plan: Plan) -> str | None:
        """End a trial that is being closed, if its deadline is over or enough devices have reported.

        Returns:
            Why it waits on though its deadline is over, if it does: it would end without effects, which nobody wants.
        """
        seen = self._trials.look(plan)
        step = Course(plan).looked(seen, lambda: self._trials.whole(plan)[0].devices)
        if step is None or seen.closing is None:
            return None
        why = step.why if isinstance(step, WaitOn) else self._end(plan)
        return why if seen.is_over else None

    def _end(self, plan: Plan) -> str | None:
        """End it, unless it would have no effects and that is not wanted.

        Returns:
            Why it was not ended, if it was not.
        """
        collector, mode = self._trials.collector(plan), mode_of(plan)
        collector.leave_out_late_moments()
        published = collector.published()
        whole, shards = self._trials.whole(plan, pending=True)
        audited = audit(plan, whole.trial.tallies)
        if plan.release is not None and whole.trial.n:
            whole = whole.copy()
            whole.trial.release(everywhere=False)  # drawn once: what is told is stored in the transaction that closes
        # After the shards: if another server commits in between, their versions are no longer those, and all is done
        # once more. The other way round its reports would be in the tallies, and missing from the counts.
        seen = self._trials.look(plan)
        if seen.stage != "replying":
            return None  # another server has ended it
        seen = seen._replace(devices=seen.devices.with_reports(seen.pending), pending=Counter())
        step = Course(plan).ends(seen, whole.devices, published is not None)
        if isinstance(step, WaitOn):
            return step.why
        effects, integrity = (None, None) if step.why is not None else mode.results(whole, seen.devices, published)
        also: list[Change] = [partial(write_arrivals, trial=plan.name, arrivals=collector.arrivals)]
        records, late = whole.trial.n, 0
        if effects is not None:
            told, unless_told = self._trials.answers.final(plan, candidate(whole, seen.devices, published))
            effects = None if told is None else told.effects
            also.append(unless_told)
            if told is not None and plan.release is None:  # an earlier answer, if fewer than a cohort have come since
                records, late = told.records, sum(seen.devices.reported.values()) - told.behind
        note = None if step.why is None else f"{step.why}."
        federated = msgspec.structs.replace(Federated.of(plan, seen), stage="closed", integrity=integrity, note=note)
        lost = left_out(shards) + about(late, rounded=True)
        answer = Answer.of(plan, effects, round_count(records), lost, federated, final=True)
        self._trials.answers.end(answer, audited, shards, also)
        self._trials.let_go(plan.name)
        return None
