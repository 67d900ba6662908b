"""How the federated trials of one server end.

A trial ends in stages, on whichever server somebody asked. What to do is for ``coordinator.ending`` to
say; here it is done. Its end begins in one transaction, after which no device joins any more. The effects are computed
and stored, as for any trial, if no server has committed in between.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import NoneType

import msgspec

from foldaway.auditing.audit import audit
from foldaway.effects import Effects
from foldaway.effects.door import OWN, TOLD
from foldaway.effects.looks import told_at_the_end
from foldaway.effects.read_flow import at_the_end
from foldaway.errors import Conflict, FoldawayError, IngestError, TrialEnded
from foldaway.federated.coordinator.ending import (
    Course,
    End,
    Ending,
    EndRequest,
    WaitOn,
    waits_on,
    would_be_without_effects,
)
from foldaway.federated.messages import Closing, PublishedSums
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.modes.shares import SumsInShares
from foldaway.federated.replies.published import Published
from foldaway.federated.summands.publishing import why_not
from foldaway.inference.rounding import round_count
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Participation, why_none
from foldaway.service.collecting.device_trials import DeviceTrials, candidate_of
from foldaway.service.collecting.leader_inbox import LeaderInbox
from foldaway.service.collecting.looking import last_looks
from foldaway.service.collecting.pair import Partner
from foldaway.service.database.device_table import write_arrivals
from foldaway.service.database.outages import again_after
from foldaway.service.database.shard_table import left_out, versions
from foldaway.service.database.store import Store
from foldaway.service.database.tables import Change


class DeviceEndings:
    """The ends of trials, as one server brings them about. Not for several threads at once."""

    def __init__(self, store: Store, answers: Answers, trials: DeviceTrials) -> None:
        self._store, self._answers, self._trials = store, answers, trials
        self._table = store.devices

    def end(self, plan: Plan, request: EndRequest) -> Effects | None:
        """Begin to end, or change how long to wait; then move on if there is nothing to wait for.

        Returns:
            From the call that ended it, its effects as they are before rounding.

        Raises:
            IngestError: Effects would be withheld, and that is not wanted; or this call would not end it, and exact
                effects are asked for.
        """
        if (partner := self._trials.partner(plan)) is not None and partner.role == "helper":
            self._abandon(plan, request)
            return None
        seen, course = self._trials.look(plan), Course(plan)
        ending = course.asked(request, seen)
        if request.exact and seen.stage != "ended":
            course.require_end(seen._replace(ending=ending or seen.ending), lambda: self._trials.whole(plan)[0].devices)
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
        if self._trials.look(plan).stage != "ended":
            if not request.without_effects:
                raise IngestError(
                    409,
                    "nothing was changed: this server is the helper, and the trial ends where its leader is. To "
                    "destroy what is here, so that there will be no effects: foldaway end "
                    f"{plan.name} --without-effects.",
                )
            self._trials.helper(plan.name).abandon()

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
        seen, (whole, _) = self._trials.look(plan), self._trials.whole(plan, pending=True)
        devices = seen.devices.with_reports(seen.pending, seen.out)
        told, _ = self._answers.final(plan, candidate_of(whole, devices, None))
        if (why := why_none(plan, told)) is not None:
            raise would_be_without_effects(plan.name, why.rstrip("."), federated=True)

    def _unpublished(self, plan: Plan) -> str | None:
        """Why the leader of two servers may not publish its sums, from its own counts of reports."""
        inbox = self._trials.collector(plan)
        return why_not(plan, inbox.account.live.settled().split) if isinstance(inbox, LeaderInbox) else None

    @again_after(Conflict)  # another server has committed, perhaps some of what is pending here
    def _begin(self, plan: Plan, ending: Ending) -> None:
        mode, collector = mode_of(plan), self._trials.collector(plan)
        # Moments that are no cohort are left out of what is published; reports may still join those here.
        if mode.replies:
            collector.leave_out_late_moments()
            collector.commit_if_due()
        whole, shards = self._trials.whole(plan)
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
        seen = self._trials.look(plan)
        step = Course(plan).looked(seen, lambda: self._trials.whole(plan)[0].devices)
        if step is None or seen.ending is None:
            return None
        ended = step if isinstance(step, WaitOn) else self._end(plan, give_up=give_up)
        return None if isinstance(ended, WaitOn) and not seen.is_over else ended

    def _end(self, plan: Plan, *, give_up: bool) -> Effects | WaitOn | None:
        """End it, unless it would have no effects and that is not wanted.

        Returns:
            Its effects before rounding, if it has some; or why it was not ended.
        """
        collector, mode = self._trials.collector(plan), mode_of(plan)
        collector.leave_out_late_moments()
        published = collector.published()
        why_not_both: str | None = None
        if isinstance(collector, LeaderInbox):
            wanted = (ending := self._trials.look(plan).ending) is not None and ending.without_effects
            why_not_both = self._unpublished(plan)
            if why_not_both is not None and not wanted:
                return WaitOn(why_not_both)
            why_not_both = why_not_both or finished(collector, give_up=give_up)
            collector.leave_out_pending()
        whole, shards = self._trials.whole(plan, pending=not mode.two_servers)
        # After the shards: if another server commits in between, their versions are no longer those, and all is done
        # once more. The other way round its reports would be in the tallies, and missing from the counts.
        seen = self._trials.look(plan)
        if seen.stage != "replying":
            return None  # another server has ended it
        devices = seen.devices.with_reports(seen.pending, seen.out)
        seen = seen._replace(devices=devices, pending=Counter(), out={})
        step = Course(plan).ends(seen, whole.devices, published is not None)
        if step == End() and why_not_both is not None:
            step = End(why_not_both)
        if isinstance(step, WaitOn):
            return step
        if (partner := self._trials.partner(plan)) is not None:
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
            candidate = candidate_of(whole, seen.devices, published, looks)
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
        self._trials.let_go(plan.name)
        return exact if ended.final == answer.dumps() else None  # another server may have been faster

    def end_due(self) -> list[FoldawayError]:
        """Move those on that are ending."""
        faults = []
        for name in self._table.endings():
            try:
                self.move_on(self._trials.plan(name))
            except FoldawayError as error:
                faults.append(error)
        return faults


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
