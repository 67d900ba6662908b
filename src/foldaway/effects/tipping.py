"""What missing outcomes could change, for each outcome and arm: read from the rows, so that nothing more is told."""

from __future__ import annotations

import math

import msgspec

from foldaway.effects.findings import Findings
from foldaway.effects.headline import comparisons
from foldaway.effects.percent import HUNDRED
from foldaway.errors import joined
from foldaway.inference.tipping import distance, shift_to, worst
from foldaway.plan.vocabulary import ESTIMATORS
from foldaway.table import number

_KINDS = ("mean", "share")


class Tipping(msgspec.Struct, frozen=True, kw_only=True):
    """What the missing outcomes of an arm and of the control could change.

    Attributes:
        outcome: The outcome.
        arm: The arm.
        control: What it is compared with.
        missing: The share of each of the two that lacks the outcome.
        threshold: What the effect is compared with: 0, unless there is a margin.
        shown: Whether the interval shows an effect on one side of the threshold.
        shift: By how much the effect would have to move for this to change.
        apart: By arm, how far its missing outcomes would have to lie from its observed ones on average, if the other
            arm's were like its observed ones; None where nothing is missing.
        average: By arm, what its missing outcomes would then be on average.
        possible: By arm, whether outcomes of the plan's bounds can be so; True without bounds.
        lowest: With bounds, the effect if everything that is missing lay where it lowers the effect most.
        highest: The same where it raises it most.
    """

    outcome: str
    arm: str
    control: str
    missing: dict[str, float]
    threshold: float
    shown: bool
    shift: float
    apart: dict[str, float | None]
    average: dict[str, float | None]
    possible: dict[str, bool]
    lowest: float | None = None
    highest: float | None = None

    def sentence(self, heading: str) -> str:
        """For a person."""
        ways = [
            f"those of {arm} averaged {number(self.average[arm], 3)} ({number(abs(by), 3)} "
            f"{'above' if by > 0 else 'below'} the observed)"
            for arm, by in self.apart.items()
            if by is not None and self.possible[arm]
        ]
        against = f"{heading}, {self.arm} against {self.control}"
        now = "no longer show" if self.shown else "show"
        said = (
            f"no averages of one arm's missing outcomes that its bounds allow would make the interval {now} an effect."
        )
        if ways:
            said = f"the interval would {now} an effect if, of the missing outcomes, {joined(ways, 'or')}."
        if self.lowest is not None and self.highest is not None:
            ends = f"{number(self.lowest, 3)} to {number(self.highest, 3)}"
            said += f" Whatever the missing outcomes are, the effect lies between {ends}, but for chance."
        return f"{against}: {said}"


def tipping_of(effects: Findings, *, percent: bool = False) -> list[Tipping]:
    """What missing outcomes could change of each effect on a mean or share; nothing where none is missing.

    Args:
        effects: The effects.
        percent: Whether those of shares are in per cent.
    """
    lost = {loss.outcome: loss for loss in effects.losses if loss.outcome is not None and any(loss.lost.values())}
    found = []
    for each in comparisons(effects):
        row, loss, outcome = each.lead, lost.get(each.outcome), effects.plan.outcome(each.outcome)
        if loss is None or outcome.KIND not in _KINDS or ESTIMATORS[row.estimator].of_effects:
            continue
        if row.estimate is None or row.control_level is None or row.alternative == "within":
            continue
        lower, upper = row.ci_lower, row.ci_upper
        if lower is None or upper is None:
            continue
        arms = (each.control, each.arm)
        missing = {arm: loss.lost[arm] / max(loss.records[arm], 1) for arm in arms}
        levels = {each.control: row.control_level, each.arm: row.control_level + row.estimate}
        shift = shift_to(row.threshold, lower, upper)
        apart = {arm: distance(shift, missing[arm], control=arm == each.control) for arm in arms}
        average = {arm: None if by is None else levels[arm] + by for arm, by in apart.items()}
        scale = HUNDRED if percent and outcome.LEVEL == "share" else 1.0
        bounds = next((value.bounds(effects.plan.bounds) for value in outcome.values), None)
        ends = None if bounds is None else (scale * bounds[0], scale * bounds[1])
        low, high = ends or (-math.inf, math.inf)
        worst_case = (
            (None, None)
            if ends is None
            else worst((levels[each.control], levels[each.arm]), (missing[each.control], missing[each.arm]), ends)
        )
        found.append(
            Tipping(
                outcome=each.outcome,
                arm=each.arm,
                control=each.control,
                missing=missing,
                threshold=row.threshold,
                shown=not lower <= row.threshold <= upper,
                shift=shift,
                apart=apart,
                average=average,
                possible={arm: at is None or low <= at <= high for arm, at in average.items()},
                lowest=worst_case[0],
                highest=worst_case[1],
            )
        )
    return found
