"""How a trial closes, as a state machine: what has happened in, what to do out. No clock, no network, no database.

open → replying → closed. Somebody asks to close the trial: from then on no device joins, and a mode with replies
publishes what devices reply to. Reports count until the deadline, or until enough devices have reported. A trial that
would end without effects waits on, for more reports, for more time, or for the wish to end it for nothing. What the
database says when a server looks is a `Situation`; the time is always an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from foldaway.errors import IngestError
from foldaway.federated.messages import Stage
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices
from foldaway.plan import Plan

# How long before its deadline a trial takes what is no cohort: servers look at their trials every second.
LAST_SECONDS = 3.0

# 0.55 of 100 devices is 55.00000000000001 of them.
_ROUNDING = 1e-12


class CloseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to close a trial; the first two are for one whose records stay on devices.

    Attributes:
        deadline: Seconds from now in which reports still count.
        share: The share of the devices whose reports are enough.
        without_effects: Whether to close it even if it ends without effects.
    """

    deadline: Annotated[float, msgspec.Meta(ge=0, le=10**7)] | None = None
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    without_effects: bool = False

    @property
    def waits(self) -> bool:
        """Whether it says for how long, or for how many."""
        return self.deadline is not None or self.share is not None


class Closing(NamedTuple):
    """A federated trial that is being closed.

    Attributes:
        deadline: Until when reports count, in seconds since 1970.
        share: The share of the devices whose reports are enough.
        without_effects: Whether it is to end even without effects.
    """

    deadline: float
    share: float
    without_effects: bool

    def is_over(self, now: float) -> bool:
        """Whether the deadline has passed."""
        return now >= self.deadline


class Situation(NamedTuple):
    """Where a federated trial stands in the database, as of one moment; while it is open it has no closing."""

    stage: Stage
    closing: Closing | None
    devices: Devices


class Extend(NamedTuple):
    """Store this closing: a trial that waited on has enough now, and other servers get a moment for what they have."""

    closing: Closing


class WaitOn(NamedTuple):
    """Leave it as it is, though it could end: it would have no effects, for this reason."""

    why: str


class End(NamedTuple):
    """End it; without effects if there is a reason for that."""

    why: str | None = None


class Course:
    """The way of one trial from open to closed.

    Args:
        plan: Its plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._replies = mode_of(plan).replies
        assert plan.federated is not None
        self._plan, self._privacy, self._federated = plan, plan.privacy, plan.federated

    # What happens.

    def asked(self, request: CloseRequest, seen: Situation, pending: Counter[str], now: float) -> Closing | None:
        """Somebody asks to close it, or to go on closing it in another way.

        Args:
            request: What is asked for. What it does not say stays as it was, but for the wish to end it for nothing.
            seen: Where the trial stands.
            pending: Reports that wait here for their cohort, by arm.
            now: The time.

        Returns:
            The closing to begin with, or to change to; None if there is nothing to change.

        Raises:
            IngestError: Even the best that can still come gives no effects, and that is not wanted.
        """
        if seen.closing is None:
            if seen.stage != "open":
                return None
            # A mode with replies always waits for them; the others wait only if they are asked to.
            seconds = self._federated.reply_deadline if self._replies or request.waits else 0.0
            closing = Closing(now + seconds, self._federated.reply_share, request.without_effects)
        elif seen.stage == "replying" and (request.waits or request.without_effects):
            closing = seen.closing._replace(without_effects=request.without_effects)
        else:
            return None
        if request.deadline is not None:
            closing = closing._replace(deadline=now + request.deadline)
        if request.share is not None:
            closing = closing._replace(share=request.share)
        if not closing.without_effects:
            self._require_hope(closing, seen, pending, now)
        return closing

    def began(self, closing: Closing, included: Sequence[int], waiting: int, now: float) -> tuple[Closing, bool]:
        """The moments are all here that will be: the closing to store, and whether to publish.

        Args:
            closing: What ``asked`` gave.
            included: The devices whose records are in the tallies, by arm.
            waiting: Messages that wait here for their cohort.
            now: The time.

        Raises:
            IngestError: What would be published is that of a few devices, so nothing is, and that is not wanted.
        """
        if not self._replies or (few := self._too_few_moments(included)) is None:
            return closing, self._replies
        if not closing.without_effects:
            wait = f"{waiting:,} messages wait here for others to make up a cohort"
            raise would_be_without_effects(self._plan.name, f"{few}. {wait}")
        return closing._replace(deadline=now), False  # nothing is published, so there is nothing to wait for

    def looked(
        self,
        seen: Situation,
        pending: Counter[str],
        included: Callable[[], Sequence[int]],
        waited_on: float | None,
        now: float,
    ) -> Extend | WaitOn | End | None:
        """A server looks at the trial, as it does every second.

        Args:
            seen: Where the trial stands.
            pending: Reports that wait here for their cohort, by arm.
            included: The devices whose records are in the tallies, by arm; asked only if it matters.
            waited_on: The deadline after which this server has found that it waits on, if it has.
            now: The time.
        """
        closing = seen.closing
        if seen.stage != "replying" or closing is None or not self._enough(closing, seen, pending, included, now):
            return None
        few = self.too_few_reports(self._countable(seen, pending))
        if closing.without_effects:
            return End()
        if few is not None:
            return WaitOn(few)
        if waited_on == closing.deadline and self._privacy.remainder == "include":
            return Extend(closing._replace(deadline=now + LAST_SECONDS))
        return End()

    def ends(self, seen: Situation, included: Sequence[int], published: bool) -> WaitOn | End:
        """All that counts is durable: whether it ends now, and without effects.

        Args:
            seen: Where the trial stands.
            included: The devices whose records are in the tallies, by arm.
            published: Whether anything was published.
        """
        why = self.too_few_reports(seen.devices.reported)
        if self._replies and not published:
            why = self._too_few_moments(included) or "nothing was published to devices"
        wanted = seen.closing is not None and seen.closing.without_effects
        return End(why) if why is None or wanted else WaitOn(why)

    def last_call(self, seen: Situation, now: float) -> float | None:
        """The deadline before which to commit a remainder that is no cohort, once, now that it has nearly come."""
        if self._privacy.remainder != "include" or seen.stage != "replying" or seen.closing is None:
            return None
        deadline = seen.closing.deadline
        return deadline if abs(now - deadline) <= LAST_SECONDS else None

    def outlook(self, seen: Situation, now: float) -> str | None:
        """What a trial that waits for reports is heading for, if that is no effects."""
        few = self.too_few_reports(seen.devices.reported)
        if seen.stage != "replying" or seen.closing is None or few is None:
            return None
        if seen.closing.without_effects:
            return f"as was asked for, the trial will end at its deadline even without effects, and as yet {few}."
        return waits_on(self._plan.name, few) if seen.closing.is_over(now) else None

    def too_few_reports(self, reported: Mapping[str, int]) -> str | None:
        """Why so many reports, by arm, give no effects, if they do not."""
        arm, devices = min(((arm, reported[arm]) for arm in self._plan.arms), key=lambda counted: counted[1])
        if devices >= self._privacy.min_per_arm:
            return None
        least = f"every arm needs durable reports of {self._privacy.min_per_arm:,} devices (the plan's min_per_arm)"
        return f"{least}, and {arm} has {devices:,}"

    # What follows from it.

    def _require_hope(self, closing: Closing, seen: Situation, pending: Counter[str], now: float) -> None:
        name, over = self._plan.name, closing.is_over(now)
        if self._replies and seen.stage == "open":
            if over:
                why = "its devices reply once it is being closed, and that takes time"
                raise would_be_without_effects(name, why, federated=True)
            return  # whether it can begin is seen from the moments
        reported = self._countable(seen, pending) if over else self._hoped_for(seen)
        if (few := self.too_few_reports(reported)) is not None:
            more = "" if over else ", with all that can still come"
            wait = f"{pending.total():,} reports wait here for others to make up a cohort of {self._privacy.cohort:,}"
            raise would_be_without_effects(name, f"{few}{more}. {wait}", federated=over)

    def _hoped_for(self, seen: Situation) -> Counter[str]:
        """The reports, by arm, if every enrolled device still sends its own."""
        reported, enrolled = Counter(seen.devices.reported), Counter(seen.devices.enrolled)
        is_cohort = (enrolled - reported).total() >= self._privacy.cohort
        counts = is_cohort or self._privacy.remainder == "include" or self._privacy.max_wait is not None
        return reported | enrolled if counts else reported

    def _countable(self, seen: Situation, pending: Counter[str]) -> Counter[str]:
        """The reports, by arm, that would be in the trial if it ended now."""
        counts = pending.total() >= self._privacy.cohort or self._privacy.remainder == "include"
        return Counter(seen.devices.reported) + (pending if counts else Counter())

    def _enough(
        self,
        closing: Closing,
        seen: Situation,
        pending: Counter[str],
        included: Callable[[], Sequence[int]],
        now: float,
    ) -> bool:
        """Whether its deadline is over, or as many as are enough have reported of those that can."""
        if closing.is_over(now):
            return True
        here = pending.total() if self._privacy.remainder == "include" else 0  # otherwise the end leaves them out
        awaited = sum(seen.devices.enrolled.values())
        if self._replies:
            awaited = min(awaited, sum(included()))
        reported = sum(seen.devices.reported.values()) + here
        return awaited > 0 and reported >= closing.share * awaited * (1 - _ROUNDING)

    def _too_few_moments(self, included: Sequence[int]) -> str | None:
        """Why an arm's moments may not be published to devices: they would be those of a few."""
        least = max(self._privacy.min_per_arm, self._privacy.cohort)
        for arm, devices in zip(self._plan.arms, included, strict=True):
            if devices < least:
                needs = f"every arm needs moments of {least:,} of them (the plan's cohort, and min_per_arm)"
                return f"before anything is published to devices, {needs}, and {arm} has {devices:,}"
        return None


def would_be_without_effects(trial: str, why: str, *, federated: bool = False) -> IngestError:
    """The refusal to end a trial for nothing."""
    time = " give its devices time (--deadline SECONDS)," if federated else ""
    return IngestError(
        409,
        f"the trial was not closed, for it would end without effects: {why}. Wait for more,{time} or close it all the "
        f"same, for good: foldaway trial close {trial} --without-effects.",
    )


def waits_on(trial: str, why: str) -> str:
    """What to say of a trial that has waited for long enough, and yet is not ended for nothing."""
    return (
        f"the trial waits on, though its deadline is over, for it would end without effects: {why}. Give its devices "
        f"more time (foldaway trial close {trial} --deadline SECONDS), or end it all the same, for good "
        "(--without-effects)."
    )
