"""What a trial is to show of an effect, and how a test decides it.

A claim is that the effect differs from zero, lies above or below a threshold, or lies within a margin of zero. Its
p-value is that of the claim's opposite. Non-inferiority is a threshold on the harmful side of zero, superiority by a
margin one on the good side, and equivalence the intersection of both (two one-sided tests, Schuirmann 1987).

Where a threshold lies on the harmful side, a second claim is tested beside the first: that the effect is harmful. The
first is false only beyond the threshold and the second only on the good side of zero, so that for every true effect at
most one of the two can be wrong, and both keep the whole error rate (partitioning; Goeman, Solari and Stijnen 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from foldaway.inference.intervals import critical, p_value, tail
from foldaway.plan.analysis import Analysis
from foldaway.plan.outcomes import Outcome

Alternative = Literal["two-sided", "greater", "less", "within"]


class Claim(NamedTuple):
    """What is to be shown of an effect.

    Attributes:
        alternative: That it differs from zero, lies above the threshold, below it, or no farther from zero than it.
        threshold: The number that it is compared with.
        stretch: How many times as large as the effect's own error that of its distance from the threshold may be: 1,
            unless the threshold moves with the control's level.

    Example:
        >>> Claim("less", 0.002).opened(-0.001, 0.0015)
        (-inf, 0.0015)
    """

    alternative: Alternative = "two-sided"
    threshold: float = 0.0
    stretch: float = 1.0

    def coverage(self, confidence: float) -> float:
        """The coverage of an interval of two ends each of which, by itself, is exceeded in 1 − confidence of trials."""
        return confidence if self.alternative == "two-sided" else max(2 * confidence - 1, 0.0)

    def opened(self, lower: float, upper: float, of: float = 1.0) -> tuple[float, float]:
        """The interval without the end that the claim says nothing of; also of the effect as a share of a number."""
        side = {"greater": 1, "less": -1}.get(self.alternative, 0) * (-1 if of < 0 else 1)
        return -math.inf if side < 0 else lower, math.inf if side > 0 else upper

    @property
    def sides(self) -> int:
        """On how many sides of an interval the error is made."""
        return 2 if self.alternative == "two-sided" else 1

    def statistic(self, z: Callable[[float], float]) -> float:
        """The distance from what is to be refuted, in standard errors; of two, the one that is nearer to it.

        Args:
            z: How far the effect lies above a number, in standard errors.
        """
        t, stretch = self.threshold, self.stretch if self.threshold else 1.0
        return (min(z(-t), -z(t)) if self.alternative == "within" else z(t)) / stretch

    def p_values(
        self, z: Callable[[float], float], one: Callable[[float], float], two: Callable[[float], float]
    ) -> tuple[float, float | None]:
        """That of the claim, and that of the one against it.

        Args:
            z: How far the effect lies above a number, in standard errors.
            one: How rare a distance as large as this is, by whichever test.
            two: How rare one as large in either direction is.
        """
        t, stretch = self.threshold, self.stretch
        match self.alternative:
            case "two-sided":
                return two(z(0.0)), None
            case "within":
                return one(self.statistic(z)), two(max(z(t), -z(-t), 0.0) / stretch)
            case "greater":
                return one(self.statistic(z)), one(-z(0.0)) if t < 0 else None
            case "less":
                return one(-self.statistic(z)), one(z(0.0)) if t > 0 else None

    def tested(
        self, estimate: float, error: float, df: float, confidence: float
    ) -> tuple[float, float, float, float, float | None]:
        """By Student's t, for a single look: where the interval begins and ends, the statistic and the p-values.

        That of the claim is below 1 − confidence if and only if the interval lies within the claim. That of the one
        against it says how rare such data are if the effect is not harmful, or not larger than the margin.

        Example:
            >>> lower, upper, _, p_value, _ = Claim("greater", -2.0).tested(0.5, 1.0, 30.0, 0.95)
            >>> round(lower, 3), upper, round(p_value, 4)
            (-1.197, inf, 0.0092)
        """
        reach = critical(self.coverage(confidence), df) * error
        ends = self.opened(estimate - reach, estimate + reach)
        return *ends, *self.by_student(lambda t: (estimate - t) / error, df)

    def by_student(self, z: Callable[[float], float], df: float) -> tuple[float, float, float | None]:
        """The statistic, and the p-values by Student's t."""
        return self.statistic(z), *self.p_values(z, lambda x: tail(x, df), lambda x: p_value(x, df))


DIFFERS = Claim()
"""The plain question: is there an effect, in either direction?"""


def claim_of(plan: Analysis, outcome: Outcome, level: float = 0.0, stretch: float = 1.0) -> Claim:
    """What the plan asks of an outcome.

    Args:
        plan: The plan.
        outcome: The outcome.
        level: The control's, of which a margin may be a percentage.
        stretch: That of the claim, where the margin is one.
    """
    margin = outcome.margin_at(level)
    sign = -1.0 if outcome.better == "lower" else 1.0
    side: Alternative = "less" if outcome.better == "lower" else "greater"
    match outcome.asks:
        case "not worse":
            return Claim(side, -sign * margin, stretch)
        case "better":
            return Claim(side, sign * margin, stretch)
        case "alike":
            return Claim("within", margin, stretch)
        case _:
            return Claim()
