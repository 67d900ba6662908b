"""One arm against the control on one outcome: the chance of a size, the size for a chance, the smallest effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from foldaway.inference.anytime import ENOUGH, LEAST_GROUPS_ANYTIME, anytime_variance
from foldaway.inference.levels import LEAST_GROUPS, Levels, difference_of
from foldaway.inference.looks.planned import LookDesign, chance_of, single_needed
from foldaway.inference.power import Aim, crossing, expected_levels, single_look, smallest
from foldaway.keeping.cohort import GROWTH
from foldaway.numerics.block import Floats
from foldaway.plan.analysis import TIGHTEST_AT
from foldaway.planning.baseline import Baseline

Goal = Literal["different", "better", "not worse", "alike"]
Alternative = Literal["two-sided", "greater", "less"]
Wanted = Literal["size", "effect", "margin", "power"]

GUARDING: tuple[Goal, ...] = ("not worse", "alike")
"""Goals that a margin guards: without an effect, none is assumed."""

MOST = 1e13
"""Records beyond which no trial is planned."""

# Where looks go on and on, sizes and effects are found to this share of theirs, in at most so many steps.
_CLOSE = 1e-4
_STEPS = 25


@dataclass(frozen=True)
class CommonDesign:
    """What all comparisons of a trial have in common.

    Attributes:
        arms: The arms with their shares; the first is the control.
        groups: Into how many groups units are dealt for errors; None if records are independent, or moments are kept.
        records_per_unit: The mean number of records of a unit; None if that is not known.
        size_cv: The standard deviation of that number over its mean.
        sequential: Whether the any-time interval decides, looked at each time that the trial has grown by `GROWTH`.
        tightest_at: The number of records at which that interval is tightest.
        drawn: Whether each unit's arm is drawn by itself, so that the arms' sizes vary.
    """

    arms: dict[str, float]
    groups: int | None = None
    records_per_unit: float | None = 1.0
    size_cv: float = 0.0
    sequential: bool = False
    tightest_at: int = TIGHTEST_AT
    drawn: bool = False


class Asked(NamedTuple):
    """What has to be shown of an outcome.

    Attributes:
        goal: Whether the arm differs, is better by the margin, not worse by more than it, or within it on both sides.
        tail: The chance of each side to be shown wrongly.
        sign: 1 if higher is better, -1 if lower is.
        alternative: For the goal "different".
    """

    goal: Goal
    tail: float
    sign: int = 1
    alternative: Alternative = "two-sided"

    def aim(self, margin: float) -> Aim:
        """The bounds that the effect must be shown to lie beyond."""
        sides: tuple[float | None, float | None]
        match self.goal:
            case "different":
                sides = None if self.alternative == "less" else 0.0, None if self.alternative == "greater" else 0.0
            case "alike":
                sides = -margin, margin
            case _:
                bound = self.sign * (margin if self.goal == "better" else -margin)
                sides = (bound, None) if self.sign > 0 else (None, bound)
        return Aim(*sides, self.goal == "alike", self.tail)


@dataclass(frozen=True)
class Comparing:
    """An arm, an outcome's baseline, and what has to be shown, and by which planned looks, if there are any."""

    design: CommonDesign
    arm: str
    baseline: Baseline
    asked: Asked
    looks: LookDesign | None = None

    def levels(self, records: float, effect: float) -> Levels:
        """Control and arm as they can be expected of so many records in the whole trial."""
        design, baseline = self.design, self.baseline
        control = next(iter(design.arms))
        n = records * np.array([design.arms[control], design.arms[self.arm]])
        per_unit = design.records_per_unit
        inflation = baseline.inflation(per_unit or 1.0, design.size_cv) * (1 - baseline.explained)
        variance = inflation * np.array([baseline.deviation(), baseline.deviation(effect)]) ** 2
        units = None if per_unit is None else n / per_unit
        if design.drawn and units is not None:  # E[1/n] = (1 + (1 − π)/J)/E[n], to the next order
            variance = variance * (1 + (1 - n / records) * (1 + design.size_cv**2) / units)
        return expected_levels(
            baseline.level + np.array([0.0, effect]),
            variance,
            n,
            groups=design.groups,
            units=None if per_unit == 1 and design.groups is None else units,
            size_cv=design.size_cv,
        )

    def error(self, records: float, effect: float) -> tuple[float, float]:
        """The standard error and its degrees of freedom."""
        found = difference_of(self.levels(records, effect), 1)
        return math.sqrt(float(found.variance)), float(found.df)

    def chance(self, records: float, effect: float, margin: float) -> float:
        """The chance that a trial of so many records shows what is asked, by its end."""
        if self.looks is not None:
            return chance_of(self.looks, self.at_one_look.chance(records, effect, margin))
        levels = self.levels(records, effect)
        least = LEAST_GROUPS_ANYTIME if self.design.sequential else LEAST_GROUPS
        if levels.n.min() < 2 or (levels.groups is not None and levels.groups.min() < least):
            return 0.0
        if self.design.sequential:
            return float(self._course(records, records, effect, margin)[1][-1])
        return single_look(self.asked.aim(margin), effect, *self.error(records, effect))

    @property
    def at_one_look(self) -> Comparing:
        """The same without looks before the end."""
        return replace(self, looks=None)

    def _course(self, last: float, at: float, effect: float, margin: float) -> tuple[Floats, Floats]:
        """Numbers of records, and the chance to have shown it by each; the error has the degrees of freedom at one."""
        levels = self.levels(at, effect)
        found = difference_of(levels, 1)
        per_record = math.sqrt(float(found.variance) * at)
        share = min(self.baseline.level, 1 - self.baseline.level) if self.baseline.sd is None else 1.0
        aim = self.asked.aim(margin)
        if not aim.both:  # to be shown on the wrong side takes an error, which is next to none
            up = aim.above is not None and effect >= aim.above
            aim = aim._replace(below=None) if up else aim._replace(above=None)
        courses = [
            crossing(
                away / per_record,
                last,
                first=ENOUGH / (share * float(levels.n.min()) / at),
                growth=GROWTH,
                tail=self.asked.tail,
                tightest_at=self.design.tightest_at,
                df=math.inf if levels.groups is None else float(found.df),
                wider=math.sqrt(float(anytime_variance(levels, 1) / found.variance)),
            )
            for away in aim.beyond(effect)
        ]
        return courses[0][0], aim.chance([chances for _, chances in courses])

    def records(self, effect: float, margin: float, power: float) -> float | None:
        """The smallest trial that shows it with this chance; None if none does."""
        if self.looks is not None:
            return self.at_one_look.records(effect, margin, single_needed(self.looks, power))
        single = replace(self, design=replace(self.design, sequential=False))
        least = 2 / min(self.design.arms.values())
        found = smallest(lambda n: single.chance(n, effect, margin) >= power, least, MOST)
        if found is None or not self.design.sequential:
            return found
        for _ in range(3):  # the degrees of freedom hardly depend on the size
            last = 4 * found
            while (course := self._course(last, found, effect, margin))[1][-1] < power:
                if (last := 4 * last) > MOST:
                    return None
            times, chances = course
            place = int(np.argmax(chances >= power))
            before, found = found, float(np.interp(power, chances[place - 1 : place + 1], times[place - 1 : place + 1]))
            if not place:
                return float(times[0])
            if abs(found - before) < _CLOSE * found:
                break
        return found

    def effect(self, records: float, margin: float, power: float) -> float | None:
        """The smallest effect that so many records show with this chance, with its sign; None if there is none."""
        if self.looks is not None:
            return self.at_one_look.effect(records, margin, single_needed(self.looks, power))
        baseline = self.baseline
        sign = -1 if self.asked.alternative == "less" else self.asked.sign  # which way it is looked for
        room = math.inf if baseline.sd is not None else (1 - baseline.level if sign > 0 else baseline.level)
        found = self._smallest(lambda size: self.chance(records, sign * size, margin), records, power, room)
        return None if found is None else sign * found

    def margin(self, records: float, effect: float, power: float) -> float | None:
        """The smallest margin that so many records guard with this chance."""
        return self._smallest(lambda size: self.chance(records, effect, size), records, power, math.inf)

    def _smallest(self, chance: Callable[[float], float], records: float, power: float, room: float) -> float | None:
        """The smallest size below a limit with this chance."""
        from scipy.special import ndtri

        error, _ = self.error(records, 0.0)
        if not self.design.sequential:
            start = min(1e-3 * error, room / 2)
            return smallest(lambda size: chance(size) >= power, start, min(1e9 * error, room * (1 - 1e-9)))
        # Each chance takes a while here, and its normal quantile is nearly linear in the size.
        size = min(4 * error, room / 2)
        for _ in range(_STEPS):
            step = float(ndtri(power) - ndtri(np.clip(chance(size), 1e-6, 1 - 1e-6))) * error
            size = max(size + step, size / 2)
            if size >= room:
                return None
            if abs(step) < _CLOSE * size:
                break
        return size


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the control on one outcome. A number that cannot be told is None, and ``why`` says so.

    ``wanted`` says which of its numbers was computed from the others. ``effect`` is the true one that is assumed, or
    the smallest one that is found; ``records`` and ``units`` are those of the whole trial; ``std_error`` is what the
    effect's would be; ``power`` is the chance to show what is asked.
    """

    outcome: str
    arm: str
    control: str
    goal: Goal
    wanted: Wanted
    level: float
    sd: float
    effect: float | None
    relative: float | None
    margin: float
    power: float | None
    records: int | None
    units: int | None
    days: float | None
    std_error: float | None
    design_effect: float
    explained: float
    why: str | None = None
