"""The boundaries of a plan's looks at the information that is really there, and what they spend of the error rate.

Lan and DeMets ("Discrete sequential boundaries for clinical trials", Biometrika 70, 1983) let a function of the
information say how much of α is spent by each look. The looks need then not be equally far apart, nor known in number:
what is spent at one depends on the information that is there, and on nothing that was observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from foldaway.inference.looks.boundaries import Crossing, crossing, efficacy, futility, planned_drift, root

Spending = str | Sequence[float]
"""The name of a spending function, or what is spent by each of the planned looks."""

OBRIEN_FLEMING = "obrien-fleming"
POCOCK = "pocock"

# The strongest drift that a trial is planned for.
_STRONGEST = 20.0


def spent(spending: Spending, alpha: float, fraction: float, at: Sequence[float] = ()) -> float:
    """What has been spent of α by the time that a fraction of the information is there, on one side.

    A list is what it says at the planned looks, as a share of its last number, and straight lines between these.

    Args:
        spending: The function, or a list.
        alpha: What there is to spend; all of it is spent at 1 and beyond.
        fraction: The information so far, as a share of the planned.
        at: Of a list, the fractions of the planned looks.

    Example:
        >>> [round(spent("obrien-fleming", 0.025, t), 5) for t in (0.5, 0.75, 1.0)]
        [0.00153, 0.00965, 0.025]
        >>> [round(spent("pocock", 0.025, t), 5) for t in (0.5, 0.75, 1.0)]
        [0.0155, 0.0207, 0.025]
        >>> round(spent([0.01, 0.05], 0.025, 0.75, at=[0.5, 1.0]), 5)
        0.015
    """
    from scipy.special import ndtr, ndtri

    if fraction <= 0:
        return 0.0
    if fraction >= 1:
        return alpha
    if spending == OBRIEN_FLEMING:
        return float(2 * ndtr(ndtri(alpha / 2) / math.sqrt(fraction)))
    if spending == POCOCK:
        return alpha * math.log(1 + (math.e - 1) * fraction)
    assert not isinstance(spending, str)
    return alpha * float(np.interp(fraction, [0.0, *at], [0.0, *spending])) / spending[-1]


class LookDesign(NamedTuple):
    """How looks were planned.

    Attributes:
        at: The shares of the information.
        alpha: The error rate of all looks together, of both sides if there are two.
        two_sided: Whether there are.
        spending: How α is spent.
        futility: How the chance to miss the planned effect is; None if the trial does not stop for futility.
        beta: That chance.
    """

    at: tuple[float, ...]
    alpha: float
    two_sided: bool
    spending: Spending
    futility: Spending | None
    beta: float

    @property
    def one_side(self) -> float:
        """The error rate of one side."""
        return self.alpha / 2 if self.two_sided else self.alpha

    def spent(self, fraction: float) -> float:
        """What has been spent of α by now, of both sides."""
        return spent(self.spending, self.one_side, fraction, self.at) * (2 if self.two_sided else 1)


class Bounds(NamedTuple):
    """By look, the bound above which an effect is shown, and the one below which going on is futile."""

    upper: list[float]
    lower: list[float]


def bounds_at(design: LookDesign, fractions: Sequence[float], *, last: bool, tests: int = 1) -> Bounds:
    """The boundaries at the looks that were taken.

    Args:
        design: How looks were planned.
        fractions: The information at each look, as a share of the planned.
        last: Whether the last of them ends the trial: all that is left is then spent.
        tests: Among how many tests α is divided: Holm's step.

    Example:
        >>> design = LookDesign((0.5, 1.0), 0.05, True, "obrien-fleming", None, 0.2)
        >>> [round(bound, 3) for bound in bounds_at(design, [0.58, 1.0], last=True).upper]
        [2.721, 1.978]
    """
    return _bounds(design, tuple(fractions), last, tests)


@lru_cache(maxsize=256)
def _bounds(design: LookDesign, fractions: tuple[float, ...], last: bool, tests: int) -> Bounds:
    alpha = design.one_side / tests
    cumulative = [spent(design.spending, alpha, t, design.at) for t in fractions]
    if last:
        cumulative[-1] = alpha
    upper = efficacy(fractions, cumulative, two_sided=design.two_sided)
    if design.futility is None:
        lower = [-math.inf] * len(fractions)
    else:
        missed = [spent(design.futility, design.beta, t, design.at) for t in fractions]
        lower = futility(fractions, upper, missed, _drift(design, tests))
    return Bounds(upper, [*lower[:-1], upper[-1]] if last else lower)


@lru_cache(maxsize=64)
def _drift(design: LookDesign, tests: int) -> float:
    """The drift for which the looks, taken as planned, have the planned power."""
    alpha = design.one_side / tests
    upper = efficacy(
        design.at, [spent(design.spending, alpha, t, design.at) for t in design.at], two_sided=design.two_sided
    )
    assert design.futility is not None
    return planned_drift(design.at, upper, [spent(design.futility, design.beta, t, design.at) for t in design.at])


def chance_of(design: LookDesign, single: float) -> float:
    """The chance that planned looks show what one look at the end, with all of α, would show with another chance.

    Example:
        >>> design = LookDesign((0.5, 1.0), 0.05, True, "obrien-fleming", None, 0.2)
        >>> round(chance_of(design, 0.8), 4)
        0.7985
    """
    from scipy.special import ndtri

    if not 0 < single < 1:
        return max(min(single, 1.0), 0.0)
    return sum(_course(design, float(ndtri(single) - ndtri(design.one_side))).above)


def single_needed(design: LookDesign, chance: float) -> float:
    """The chance that one look at the end must have, so that the planned looks have this one."""
    from scipy.special import ndtr, ndtri

    drift = root(lambda drift: sum(_course(design, drift).above) - chance, 0.0, _STRONGEST)
    return float(ndtr(drift + ndtri(design.one_side)))


def mean_share(design: LookDesign, single: float) -> float:
    """How much of the information a trial has used on average when it stops, if one look would have this chance.

    Example:
        >>> design = LookDesign((0.5, 1.0), 0.05, True, "obrien-fleming", None, 0.2)
        >>> round(mean_share(design, 0.8), 3)
        0.918
    """
    from scipy.special import ndtri

    course = _course(design, float(ndtri(min(max(single, 1e-9), 1 - 1e-9)) - ndtri(design.one_side)))
    early = [above + below for above, below in zip(course.above[:-1], course.below[:-1], strict=True)]
    return 1 - sum(ended * (1 - share) for ended, share in zip(early, design.at[:-1], strict=True))


def _course(design: LookDesign, drift: float) -> Crossing:
    """How probably the looks end the trial, taken as planned."""
    upper, lower = bounds_at(design, design.at, last=True)
    if design.two_sided:
        lower = [max(low, -high) for low, high in zip(lower, upper, strict=True)]
    return crossing(design.at, lower, upper, drift)
