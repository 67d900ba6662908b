"""What planned looks found, as it is kept with a trial and told."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Found = Literal[
    "stop for benefit",
    "stop for harm",
    "stop, it is higher",
    "stop, it is lower",
    "stop for futility",
    "not shown",
    "go on",
]

BENEFIT: Found = "stop for benefit"
HARM: Found = "stop for harm"
HIGHER: Found = "stop, it is higher"
LOWER: Found = "stop, it is lower"
FUTILE: Found = "stop for futility"
UNSHOWN: Found = "not shown"
GO_ON: Found = "go on"

SHOWN = (BENEFIT, HARM, HIGHER, LOWER)
"""What is found for good: no later look takes it back."""


# Three fifths of the information are twelve steps, whatever the order of a division was.
_ROUNDING = 1e-9


class ArmLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a look found of an arm.

    Attributes:
        arm: The arm.
        found: What it came to.
        z: The statistic, above 0 where the arm is better, or just higher; None where others are told.
        upper: The bound above which a benefit is shown, and, of a two-sided test, below minus which a harm is; None if
            nothing could be shown at this look.
        lower: The bound below which going on is futile; None if there is none.
        p_value: If the trial stopped here for this arm, the p-value by stage-wise ordering.
        estimate: The same for the effect, median unbiased.
        ci_lower: Where its interval begins.
        ci_upper: Where it ends.
    """

    arm: str
    found: Found
    z: float | None = None
    upper: float | None = None
    lower: float | None = None
    p_value: float | None = None
    estimate: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A look that was taken.

    Attributes:
        outcome: The outcome.
        fraction: How much information there was, as a share of the planned.
        spent: How much of the error rate has been spent by now.
        last: Whether it was the last one.
        arms: What it found of each arm.
    """

    outcome: str
    fraction: float
    spent: float
    last: bool
    arms: tuple[ArmLook, ...]

    @property
    def over(self) -> bool:
        """Whether no further look can show anything: it was the last, or every arm is decided."""
        return self.last or all(each.found in SHOWN for each in self.arms)

    def of(self, arm: str) -> ArmLook | None:
        """What it found of an arm."""
        return next((each for each in self.arms if each.arm == arm), None)

    def told(self) -> Look:
        """As others are told: the words alone, and how far the trial was at the least, in steps of 5 %."""
        arms = tuple(ArmLook(arm=each.arm, found=each.found) for each in self.arms)
        share, spent = math.floor(20 * self.fraction + _ROUNDING) / 20, round(self.spent, 3)
        return Look(outcome=self.outcome, fraction=share, spent=spent, last=self.last, arms=arms)
