"""How a trial is to be closed, and when that is refused."""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple, Self

import msgspec

from foldaway.errors import IngestError
from foldaway.plan import Plan


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    @property
    def changes(self) -> bool:
        """Whether it says anything that a trial that is being closed does not know."""
        return self.waits or self.without_effects


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

    @classmethod
    def begun(cls, plan: Plan, wanted: Wanted) -> Self:
        """Begin now. Mode scores always waits for replies; the others wait only if they are asked to."""
        assert plan.federated is not None
        waits = plan.mode == "scores" or wanted.waits
        seconds = (plan.federated.reply_deadline if waits else 0.0) if wanted.deadline is None else wanted.deadline
        share = plan.federated.reply_share if wanted.share is None else wanted.share
        return cls(time.time() + seconds, share, wanted.without_effects)

    def changed(self, wanted: Wanted) -> Self:
        """Go on with what is wanted now: what it does not say stays, but for the wish to end it for nothing."""
        return self._replace(
            deadline=self.deadline if wanted.deadline is None else time.time() + wanted.deadline,
            share=self.share if wanted.share is None else wanted.share,
            without_effects=wanted.without_effects,
        )

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.time() >= self.deadline


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
