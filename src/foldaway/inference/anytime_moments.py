"""Any-time intervals of effects whose errors come from the arms' moments; the rules are those of `anytime`."""

from __future__ import annotations

import math

import numpy as np

from foldaway.inference.anytime import (
    ENOUGH,
    LEAST_GROUPS_ANYTIME,
    Anytime,
    anytime_interval,
    anytime_variance,
    evidence,
    waiting,
)
from foldaway.inference.claim import DIFFERS, Claim
from foldaway.inference.contrast import Estimate, Question
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.rounding import round_count, two_digits
from foldaway.numerics.block import Floats

# Sums of a 0/1 outcome and of its squares agree but for rounding.
_ROUNDING = 1e-9

_LOWER_BOUND = (
    " If the outcome takes both signs, moments give only a lower bound of that number; a plan with "
    'keep = "sums" (the default) can tell.'
)


def anytime_of_moments(
    question: Question,
    point: Estimate,
    units: tuple[int, int] | None,
    confidence: float,
    tightest_at: int,
    claim: Claim = DIFFERS,
    *,
    rounded: bool = False,
) -> Anytime:
    """The interval at any time for an effect, or what it waits for.

    Args:
        question: Which effect.
        point: The effect with its error for a single look.
        units: The number of units in all arms, and in the smaller of those compared, if the error is clustered.
        confidence: Of the interval.
        tightest_at: The number of records, or of units if the error is clustered, at which it is to be tightest.
        claim: What is to be shown of the effect.
        rounded: Whether it is told to others, and nothing exact may be behind it.
    """
    records, mean, square, variance = _outcome(question)
    if why := _waiting(records, mean, square, units):
        return Anytime(why=why)
    n, df = (sum(arm.n for arm in question.arms), math.inf) if units is None else (units[0], point.df)
    # The pooled variance of the difference of means over the arm-wise one.
    levels = Levels(mean, np.diag(variance / records), np.zeros((2, 2)), records)
    by_arm = float(difference_of(levels, 1).variance)
    inflation = math.sqrt(max(float(anytime_variance(levels, 1)) / by_arm, 1.0)) if by_arm else 1.0
    if rounded:
        n, inflation = round_count(n), float(two_digits(inflation))
    error = point.std_error * inflation
    return anytime_interval(claim, point.estimate, error, n, confidence, tightest_at, df)


def _waiting(n: Floats, mean: Floats, square: Floats, units: tuple[int, int] | None) -> str:
    if units is not None and units[1] < LEAST_GROUPS_ANYTIME:
        return f"an any-time interval needs {LEAST_GROUPS_ANYTIME} units in each arm; an arm has {units[1]}."
    total, squares = n * mean, n * square
    # |Σv| in place of Σ|v|, which moments do not hold: never larger, and equal for outcomes that are never negative.
    why = waiting(float(evidence(n, total, np.abs(total), squares)))
    exact = np.all(np.abs(total - squares) <= _ROUNDING * squares)
    return why + _LOWER_BOUND if why and not exact and n.min() >= ENOUGH else why


def _outcome(question: Question) -> tuple[Floats, Floats, Floats, Floats]:
    """An outcome in the control and in an arm: records, their mean, their mean square and their variance.

    Read from the raw factors: in R'R = Σ w z z' the first row holds the means, the others what varies about them.
    Large outcomes are scaled down, so that no square overflows; nothing that is read depends on the scale.
    """
    arms = [question.arms[0], question.arms[question.arm]]
    factors = [arm.raw_factor() for arm in arms]
    columns = [R[:, arm.shape.regressors + question.outcome] / R[0, 0] for arm, R in zip(arms, factors, strict=True)]
    largest = max(1.0, *(float(np.abs(column).max()) for column in columns))
    columns = [column / largest for column in columns]
    return (
        np.array([arm.n for arm in arms], dtype=np.float64),
        np.array([column[0] for column in columns]),
        np.array([column @ column for column in columns]),
        np.array([column[1:] @ column[1:] for column in columns]),
    )
