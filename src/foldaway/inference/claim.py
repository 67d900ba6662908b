"""What a trial is to show of an effect, and how a test decides it.

A claim is that the effect differs from zero, lies above or below a threshold, or lies within a margin of zero. Its
p-value is that of the claim's opposite. Non-inferiority is a threshold on the harmful side of zero, superiority by a
margin one on the good side, and equivalence the intersection of both (two one-sided tests, Schuirmann 1987).

Where a threshold lies on the harmful side, a second claim is tested beside the first: that the effect is harmful. The
first is false only beyond the threshold and the second only on the good side of zero, so that for every true effect at
most one of the two can be wrong, and both keep the whole error rate (partitioning; Goeman, Solari and Stijnen 2010).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from foldaway.inference.intervals import critical, p_value, tail
from foldaway.plan.analysis import Analysis
from foldaway.plan.outcomes import Outcome

Alternative = Literal["two-sided", "greater", "less", "within"]


class Tested(NamedTuple):
    """An interval, the p-value that goes with it, and that of the claim against it, if there is one.

    Attributes:
        lower: Where the interval begins; −∞ if the claim has one side only.
        upper: Where it ends.
        p_value: Below 1 − confidence if and only if the interval lies within the claim.
        p_against: How rare such data are if the effect is not harmful, or not larger than the margin.
    """

    lower: float
    upper: float
    p_value: float
    p_against: float | None


class Claim(NamedTuple):
    """What is to be shown of an effect.

    Attributes:
        alternative: That it differs from zero, lies above the threshold, below it, or no farther from zero than it.
        threshold: The number that it is compared with.

    Example:
        >>> Claim("less", 0.002).opened(-0.001, 0.0015)
        (-inf, 0.0015)
    """

    alternative: Alternative = "two-sided"
    threshold: float = 0.0

    def coverage(self, confidence: float) -> float:
        """The coverage of an interval of two ends each of which, by itself, is exceeded in 1 − confidence of trials."""
        return confidence if self.alternative == "two-sided" else max(2 * confidence - 1, 0.0)

    def opened(self, lower: float, upper: float) -> tuple[float, float]:
        """The interval without the end that the claim says nothing of."""
        inf = float("inf")
        return -inf if self.alternative == "less" else lower, inf if self.alternative == "greater" else upper

    def statistic(self, estimate: float, error: float) -> float:
        """The distance from what is to be refuted, in standard errors; of two, the one that is nearer to it."""
        if self.alternative == "within":
            return min(estimate + self.threshold, self.threshold - estimate) / error
        return (estimate - self.threshold) / error

    def p_values(
        self, estimate: float, error: float, one: Callable[[float], float], two: Callable[[float], float]
    ) -> tuple[float, float | None]:
        """That of the claim, and that of the one against it.

        Args:
            estimate: The effect.
            error: Its standard error.
            one: How rare a statistic as large as this is, whichever test it is.
            two: How rare one as far from zero is.
        """
        z = self.statistic(estimate, error)
        match self.alternative:
            case "two-sided":
                return two(z), None
            case "within":
                beyond = max(abs(estimate) - self.threshold, 0.0)
                return one(z), two(beyond / error)
            case "greater":
                return one(z), one(-estimate / error) if self.threshold < 0 else None
            case "less":
                return one(-z), one(estimate / error) if self.threshold > 0 else None

    def tested(self, estimate: float, error: float, df: float, confidence: float) -> Tested:
        """By Student's t, for a single look.

        Example:
            >>> found = Claim("greater", -2.0).tested(0.5, 1.0, 30.0, 0.95)
            >>> round(found.lower, 3), found.upper, round(found.p_value, 4)
            (-1.197, inf, 0.0092)
        """
        reach = critical(self.coverage(confidence), df) * error
        p, against = self.p_values(estimate, error, lambda z: tail(z, df), lambda z: p_value(z, df))
        return Tested(*self.opened(estimate - reach, estimate + reach), p, against)


DIFFERS = Claim()
"""The plain question: is there an effect, in either direction?"""


def claim_of(plan: Analysis, outcome: Outcome) -> Claim:
    """What the plan asks of an outcome."""
    margin = outcome.margin or 0.0
    sign = -1.0 if outcome.better == "lower" else 1.0
    side: Alternative = "less" if outcome.better == "lower" else "greater"
    match outcome.asks:
        case "not worse":
            return Claim(side, -sign * margin)
        case "better":
            return Claim(side, sign * margin)
        case "alike":
            return Claim("within", margin)
        case _:
            return Claim(plan.alternative)
