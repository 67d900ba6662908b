"""How a trial is to be closed, and when that is refused."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foldaway.errors import IngestError


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to close a trial; the first two are for one whose records stay on devices.

    Attributes:
        deadline: Seconds from now in which reports still count.
        share: The share of the enrolled devices whose reports are enough.
        without_effects: Whether to close it even if it ends without effects.
    """

    deadline: Annotated[float, msgspec.Meta(ge=0, le=10**7)] | None = None
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    without_effects: bool = False

    @property
    def waits(self) -> bool:
        """Whether it says for how long, or for how many."""
        return self.deadline is not None or self.share is not None


def would_be_without_effects(why: str) -> IngestError:
    """The refusal to end a trial for nothing."""
    return IngestError(
        409,
        f"the trial was not closed, for it would end without effects: {why}. Wait for more, or close it all the same, "
        "for good: foldaway trial close --without-effects.",
    )
