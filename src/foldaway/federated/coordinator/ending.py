"""How a trial ends, as a state machine: what has happened in, what to do out. No clock, no network, no database.

open → replying → ended. Somebody asks to end the trial: from then on no device joins, and a mode with replies
publishes what devices reply to. Reports count until the deadline, or until enough devices have reported. A trial that
would end without effects waits on, for more reports, for more time, or for the wish to end it for nothing. What the
database says when a server looks is a `Situation`; the time is always an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, NamedTuple

import msgspec

from foldaway.errors import IngestError, many
from foldaway.federated.messages import Stage
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices
from foldaway.keeping import cohort
from foldaway.plan import Plan

# 0.55 of 100 devices is 55.00000000000001 of them.
_ROUNDING = 1e-12


class EndRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to end a trial; the first two are for one whose records stay on devices.

    Attributes:
        deadline: Seconds from now in which reports still count.
        share: The share of the devices whose reports are enough.
        without_effects: Whether to end it even if effects would be withheld.
        exact: Whether to answer with exact numbers, once; what is stored and shown to others is rounded. Refused
            where this request would begin to wait, and so would not end the trial.
    """

    deadline: Annotated[float, msgspec.Meta(ge=0, le=10**7)] | None = None
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    without_effects: bool = False
    exact: bool = False

    @property
    def waits(self) -> bool:
        """Whether it says for how long, or for how many."""
        return self.deadline is not None or self.share is not None


class Ending(NamedTuple):
    """A federated trial that is ending.

    Attributes:
        deadline: Until when reports count, in seconds since 1970.
        share: The share of the devices whose reports are enough.
        without_effects: Whether it is to end even without effects.
    """

    deadline: float
    share: float
    without_effects: bool


class Situation(NamedTuple):
    """Where a federated trial stands, as one server sees it.

    Attributes:
        stage: As the database has it, and so are the next two.
        ending: How it is ending, unless it is open.
        devices: Who has joined, and whose report is durable.
        pending: Reports that wait in this server's memory for their cohort, by arm; less those to be taken out.
        now: The time, in seconds since 1970.
        out: Withdrawals that wait there, by arm.
    """

    stage: Stage
    ending: Ending | None
    devices: Devices
    pending: Counter[str]
    now: float
    out: Mapping[str, int] = MappingProxyType({})

    @property
    def is_over(self) -> bool:
        """Whether it is ending, and its deadline has passed."""
        return self.ending is not None and self.now >= self.ending.deadline


class WaitOn(NamedTuple):
    """Leave it as it is, though it could end: it would have no effects, for this reason."""

    why: str


class End(NamedTuple):
    """End it; without effects if there is a reason for that."""

    why: str | None = None


class Course:
    """The way of one trial from open to ended."""

    def __init__(self, plan: Plan) -> None:
        self._replies = mode_of(plan).replies
        assert plan.federated is not None
        self._plan, self._privacy, self._federated = plan, plan.privacy, plan.federated

    # What happens.

    def asked(self, request: EndRequest, seen: Situation) -> Ending | None:
        """Somebody asks to end it, or to go on ending it in another way.

        Returns:
            The ending to begin with, or to change to; None if there is nothing to change. What is not asked for stays
            as it was, but for the wish to end it for nothing.

        Raises:
            IngestError: Even the best that can still come gives no effects, and that is not wanted; or the share of
                devices that have reported is to end a trial that is released with noise.
        """
        if request.share is not None and self._plan.release is not None:
            raise IngestError(
                409,
                "nothing was changed: this trial is published with noise (`release`), and when it ends must not "
                "depend on how many devices have reported. Leave out the share and set a deadline.",
            )
        if seen.ending is None:
            if seen.stage != "open":
                return None
            # A mode with replies always waits for them; the others wait only if they are asked to.
            seconds = self._federated.reply_deadline if self._replies or request.waits else 0.0
            ending = Ending(seen.now + seconds, self._federated.reply_share, request.without_effects)
        elif seen.stage == "replying" and (request.waits or request.without_effects):
            ending = seen.ending._replace(without_effects=request.without_effects)
        else:
            return None
        if request.deadline is not None:
            ending = ending._replace(deadline=seen.now + request.deadline)
        if request.share is not None:
            ending = ending._replace(share=request.share)
        if ending.without_effects:
            return ending
        seen, why = seen._replace(ending=ending), None
        if self._replies and seen.stage == "open":  # whether it can begin is seen from the moments
            why = "its devices reply once it is ending, and that takes time" if seen.is_over else None
        elif seen.is_over:
            why = self.too_few_reports(seen.devices, self._countable(seen))
        # If every enrolled device still sends its report.
        elif few := self.too_few_reports(seen.devices, self._most(seen.devices)):
            why = f"{few}, with all that can still come"
        if why is not None:
            raise would_be_without_effects(self._plan.name, why, federated=seen.is_over)
        return ending

    def began(self, ending: Ending, included: Sequence[int], waiting: int, now: float) -> tuple[Ending, bool]:
        """The moments are all here that will be: the ending to store, and whether to publish.

        Args:
            ending: What ``asked`` gave.
            included: The devices whose records are in the tallies, by arm.
            waiting: Messages that wait here for their cohort.
            now: The time.

        Raises:
            IngestError: What would be published is that of a few devices, so nothing is, and that is not wanted.
        """
        if not self._replies or (few := self._too_few_moments(included)) is None:
            return ending, self._replies
        if not ending.without_effects:
            wait = f"Messages that wait here for others to make up a cohort: {waiting:,}"
            raise would_be_without_effects(self._plan.name, f"{few}. {wait}")
        return ending._replace(deadline=now), False  # nothing is published, so there is nothing to wait for

    def looked(self, seen: Situation, included: Callable[[], Sequence[int]]) -> WaitOn | End | None:
        """A server looks at the trial, as it does every second; it asks who is included only if that matters."""
        ending = seen.ending
        if seen.stage != "replying" or ending is None or not (seen.is_over or self._enough(ending, seen, included)):
            return None
        if ending.without_effects:
            return End()
        few = self.too_few_reports(seen.devices, self._countable(seen))
        return End() if few is None else WaitOn(few)

    def ends(self, seen: Situation, included: Sequence[int], published: bool) -> WaitOn | End:
        """All that counts is durable, with devices so included in the tallies, by arm: whether it ends now."""
        why = self.too_few_reports(seen.devices)
        if self._replies and not published:
            why = self._too_few_moments(included) or "nothing was published to devices"
        wanted = seen.ending is not None and seen.ending.without_effects
        return End(why) if why is None or wanted else WaitOn(why)

    def require_end(self, seen: Situation, included: Callable[[], Sequence[int]]) -> None:
        """Refuse to wait where exact effects are asked for: these go to the request that ends the trial.

        Raises:
            IngestError: It would not end now, but wait for reports.
        """
        if self.looked(seen._replace(stage="replying"), included) is None:
            last = f"end it with: foldaway end {self._plan.name} --deadline 0 --exact"
            first = "" if seen.stage == "replying" else "End it without --exact first. "
            raise IngestError(
                409,
                "nothing was changed, because the trial would now wait for reports, and only the command that ends it "
                f"can give exact effects. {first}Once enough have come, but before the deadline, {last}",
            )

    def outlook(self, seen: Situation) -> str | None:
        """What a trial that waits for reports is heading for, if that is no effects."""
        few = self.too_few_reports(seen.devices)
        if seen.stage != "replying" or seen.ending is None or few is None:
            return None
        if seen.ending.without_effects:
            return f"as was asked for, the trial will end at its deadline even without effects, and as yet {few}."
        return waits_on(self._plan.name, few) if seen.is_over else None

    def too_few_reports(self, devices: Devices, reported: Mapping[str, int] | None = None) -> str | None:
        """Why these reports, or so many by arm, give no effects, if they do not; of a release, its noise decides."""
        if self._plan.release is not None:
            return None
        reported = devices.reported if reported is None else reported
        if len(devices.sites) < (least_sites := self._federated.sites or 0):
            least = f"reports of {many(least_sites, 'site')} (the plan's `federated.sites`)"
            return f"effects need {least}, and {many(len(devices.sites), 'site')} reported"
        counts = {arm: reported[arm] for arm in self._plan.arms}
        if cohort.may_tell(self._privacy, cohort.Census({arm: [n] for arm, n in counts.items()}), None):
            return None
        if few := cohort.too_few_to_answer(self._privacy, counts):
            arm = min(few, key=few.__getitem__)
            least = f"durable reports of {many(self._privacy.smallest_cell, 'device')} (the plan's smallest_cell)"
            return f"every arm needs {least}, and {arm} has {few[arm]:,}"
        least = f"durable reports of {many(self._privacy.cohort, 'device')} (the plan's cohort)"
        return f"effects need {least}, and there are {sum(counts.values()):,}"

    # What follows from it.

    def _most(self, devices: Devices) -> Counter[str]:
        """The reports, by arm, that there can be: whoever has withdrawn sends none."""
        return Counter(devices.reported) | (Counter(devices.enrolled) - Counter(devices.withdrawn))

    def _countable(self, seen: Situation) -> Counter[str]:
        """The reports, by arm, that would be in the trial if it ended now."""
        return Counter(seen.devices.reported) + seen.pending

    def _enough(self, ending: Ending, seen: Situation, included: Callable[[], Sequence[int]]) -> bool:
        """Whether as many as are enough have reported of those that can; a release waits until the deadline."""
        if self._plan.release is not None:
            return False
        awaited = self._most(seen.devices).total()
        if self._replies:
            awaited = min(awaited, sum(included()))
        return awaited > 0 and self._countable(seen).total() >= ending.share * awaited * (1 - _ROUNDING)

    def _too_few_moments(self, included: Sequence[int]) -> str | None:
        """Why an arm's moments may not be published to devices: they would be those of a few."""
        least = f"moments of {cohort.least_to_publish(self._privacy):,} of them (the plan's cohort, and smallest_cell)"
        few = cohort.too_few_to_publish(self._privacy, dict(zip(self._plan.arms, included, strict=True)))
        for arm, devices in few.items():
            return f"before anything is published to devices, every arm needs {least}, and {arm} has {devices:,}"
        return None


def would_be_without_effects(trial: str, why: str, *, federated: bool = False) -> IngestError:
    """The refusal to end a trial for nothing."""
    time = " give its devices time (--deadline SECONDS)," if federated else ""
    return IngestError(
        409,
        f"the trial is still open, because effects would be withheld: {why}. Wait for more,{time} or end it "
        f"anyway, which cannot be undone: foldaway end {trial} --without-effects.",
    )


def waits_on(trial: str, why: str) -> str:
    """What to say of a trial that has waited for long enough, and yet is not ended for nothing."""
    return (
        f"the trial waits on, though its deadline is over, for effects would be withheld: {why}. Give its devices "
        f"more time (foldaway end {trial} --deadline SECONDS), or end it all the same, for good "
        "(--without-effects)."
    )
