"""The flow of participants through a trial, in the shape of CONSORT 2025: from those assessed to those analysed.

Hopewell et al., "CONSORT 2025 statement: updated guideline for reporting randomised trials" (BMJ 389, e081123, 2025),
figure 1. Who was assessed is said by the plan, or at the end; all else comes from counters.
"""

from __future__ import annotations

import msgspec


class FlowArm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's part.

    Attributes:
        arm: The arm.
        randomised: How many were allocated to it and have a record.
        received: How many of them received what they were allocated to; None if the plan does not say, or others may
            not know.
        lost: How many records were left out as faulty, by reason.
        analysed: How many are in the analysis, by outcome.
        without: How many lack the outcome, by outcome.
    """

    arm: str
    randomised: int
    received: int | None = None
    lost: dict[str, int] = {}
    analysed: dict[str, int] = {}
    without: dict[str, int] = {}


class FlowDiagram(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        counted: What the arms' numbers count: units, or records where a unit may have several.
        assessed: How many were assessed for eligibility, if that is known.
        excluded: How many of them were not randomised, by reason.
        unknown: How many records name no arm of the plan.
        arms: The arms.
        exact: Whether the numbers are exact, as they are to whoever owns the trial and once it has ended.

    Example:
        >>> arms = [FlowArm(arm="a", randomised=30), FlowArm(arm="b", randomised=29)]
        >>> diagram = FlowDiagram(counted="units", assessed=80, excluded={"not eligible": 20}, arms=arms, exact=True)
        >>> diagram.randomised, diagram.unaccounted
        (59, 1)
    """

    counted: str
    assessed: int | None = None
    excluded: dict[str, int] = {}
    unknown: int = 0
    arms: list[FlowArm] = []
    exact: bool = True

    @property
    def randomised(self) -> int:
        """How many were randomised and have a record."""
        return sum(each.randomised for each in self.arms)

    @property
    def unaccounted(self) -> int | None:
        """How many were neither excluded nor have a record; None where that is not known."""
        if self.assessed is None or self.counted != "units" or not self.exact:
            return None
        return self.assessed - sum(self.excluded.values()) - self.randomised - self.unknown
