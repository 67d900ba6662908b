"""Where the boundaries of planned looks lie, and how probably a trial crosses them.

At look k, with the fraction t_k of the planned information, the statistic is z_k. The scores s_k = z_k √t_k have
independent normal increments, of mean δ (t_k − t_{k−1}) and variance t_k − t_{k−1}, where the drift δ is what z is
expected to be once all the information is there. The density of s_k among trials that go on is carried from look to
look by numerical integration (Armitage, McPherson and Rowe 1969; the grid and Simpson's rule as in chapter 19 of
Jennison and Turnbull, "Group Sequential Methods with Applications to Clinical Trials", 2000), with a finer grid than
theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats

# Theirs is 16 to 18, for a relative error of 1e-7 at looks that are far apart; looks close together need more.
_FINENESS = 64

# Beyond so many standard errors nothing is left that a number could hold.
_FAR = 37.0

# The strongest drift that anybody plans for.
_STRONGEST = 20.0

_ROOT_TWO_PI = math.sqrt(2 * math.pi)


class Crossing(NamedTuple):
    """By look, how probably a trial that has gone on until then ends above its boundaries, or below them."""

    above: list[float]
    below: list[float]


class Walk(NamedTuple):
    """Where a trial that goes on stands: scores and how probable they are, at a fraction of the information."""

    scores: Floats
    mass: Floats
    fraction: float
    drift: float

    @classmethod
    def begin(cls, drift: float = 0.0) -> Walk:
        """Before the first look."""
        return cls(np.zeros(1), np.ones(1), 0.0, drift)

    def above(self, fraction: float, bound: float) -> float:
        """How probably the trial has gone on until now and z lies above a bound at the next look."""
        from scipy.special import ndtr

        return float(self.mass @ ndtr(-self._to(fraction, bound)))

    def below(self, fraction: float, bound: float) -> float:
        """How probably the trial has gone on until now and z lies below a bound at the next look."""
        from scipy.special import ndtr

        return float(self.mass @ ndtr(self._to(fraction, bound)))

    def go_on(self, fraction: float, lower: float, upper: float) -> Walk:
        """After the next look, if z lies between the bounds there."""
        z, weights = _grid(lower, upper, self.drift * math.sqrt(fraction))
        step = fraction - self.fraction
        scores = z * math.sqrt(fraction)
        distance = (scores[:, None] - self.scores[None, :] - self.drift * step) / math.sqrt(step)
        density = np.exp(-(distance**2) / 2) @ self.mass / (_ROOT_TWO_PI * math.sqrt(step))
        return Walk(scores, weights * math.sqrt(fraction) * density, fraction, self.drift)

    def _to(self, fraction: float, bound: float) -> Floats:
        """How far the bound lies above what is expected, in standard errors of what is new."""
        step = fraction - self.fraction
        reach: Floats = (bound * math.sqrt(fraction) - self.scores - self.drift * step) / math.sqrt(step)
        return reach


def crossing(
    fractions: Sequence[float], lower: Sequence[float], upper: Sequence[float], drift: float = 0.0
) -> Crossing:
    """How probably a trial ends at each look, above the upper boundary or below the lower one.

    Example:
        >>> found = crossing([0.5, 1.0], [-2.178, -2.178], [2.178, 2.178])  # Pocock's, of two looks
        >>> round(sum(found.above) + sum(found.below), 4)
        0.05
    """
    walk, above, below = Walk.begin(drift), [], []
    for fraction, low, high in zip(fractions, lower, upper, strict=True):
        above.append(walk.above(fraction, high))
        below.append(walk.below(fraction, low))
        walk = walk.go_on(fraction, low, high)
    return Crossing(above, below)


def efficacy(fractions: Sequence[float], cumulative: Sequence[float], *, two_sided: bool) -> list[float]:
    """The upper boundary at each look; that on the other side, of a two-sided test, is its mirror image.

    Futility does not enter, so that the error rate holds whether or not a trial stops for it (non-binding).

    Args:
        fractions: The information at each look, as a share of the planned.
        cumulative: What has been spent by each look, on one side.
        two_sided: Whether the trial stops at the lower boundary too.

    Example:
        >>> from foldaway.inference.looks.planned import spent
        >>> thirds = [1 / 3, 2 / 3, 1.0]
        >>> alphas = [spent("obrien-fleming", 0.025, t) for t in thirds]
        >>> [round(each, 3) for each in efficacy(thirds, alphas, two_sided=False)]
        [3.71, 2.511, 1.993]
    """
    walk, bounds, before = Walk.begin(), [], 0.0
    for fraction, so_far in zip(fractions, cumulative, strict=True):
        bound = _upper(walk, fraction, so_far - before)
        walk = walk.go_on(fraction, -bound if two_sided else -math.inf, bound)
        bounds.append(bound)
        before = so_far
    return bounds


def futility(
    fractions: Sequence[float], upper: Sequence[float], cumulative: Sequence[float], drift: float
) -> list[float]:
    """The lower boundary at each look, below which going on is futile; never above the upper one.

    Args:
        fractions: The information at each look, as a share of the planned.
        upper: The upper boundary.
        cumulative: By each look, how probable a stop for futility may have been, if the drift is this.
        drift: What z is expected to be once all the information is there.
    """
    walk, bounds, before = Walk.begin(drift), [], 0.0
    for fraction, high, so_far in zip(fractions, upper, cumulative, strict=True):
        bound = min(_lower(walk, fraction, so_far - before), high)
        before += walk.below(fraction, bound)
        walk = walk.go_on(fraction, bound, high)
        bounds.append(bound)
    return bounds


def planned_drift(fractions: Sequence[float], upper: Sequence[float], cumulative: Sequence[float]) -> float:
    """The drift at which a trial that stops for futility misses the upper boundary as often as it may.

    Args:
        fractions: The information at each planned look, as a share of the planned.
        upper: The upper boundary.
        cumulative: By each look, how probable a stop for futility may be; at the last, an end below the boundary.

    Example:
        >>> round(planned_drift([1.0], [1.959964], [0.1]), 4)  # of one look: z for 97.5 % and for 90 %
        3.2415
    """

    def missed(drift: float) -> float:
        lower = futility(fractions[:-1], upper[:-1], cumulative[:-1], drift)
        below = crossing(fractions, [*lower, upper[-1]], upper, drift).below
        return sum(below) - cumulative[-1]

    return root(missed, 0.0, _STRONGEST)


def _upper(walk: Walk, fraction: float, alpha: float) -> float:
    """Above which bound a trial ends with this probability; infinity where there is none to spend."""
    if alpha <= 0 or walk.above(fraction, _FAR) > alpha:
        return math.inf
    return root(lambda bound: walk.above(fraction, bound) - alpha, -_FAR, _FAR)


def _lower(walk: Walk, fraction: float, beta: float) -> float:
    if beta <= 0:
        return -math.inf
    if walk.below(fraction, _FAR) <= beta:
        return math.inf
    return root(lambda bound: walk.below(fraction, bound) - beta, -_FAR, _FAR)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotone function is zero between two numbers; the end that is nearer, where it is so nowhere."""
    from scipy.optimize import brentq

    first, last = function(low), function(high)
    if first * last > 0:
        return low if abs(first) < abs(last) else high
    return float(brentq(function, low, high, xtol=1e-11, rtol=1e-14))


def _grid(lower: float, upper: float, centre: float) -> tuple[Floats, Floats]:
    """Points between the bounds, dense around a centre, and Simpson's weights."""
    r = _FINENESS
    tail = 3 + 4 * np.log(r / np.arange(1.0, r))
    middle = -3 + 3 * np.arange(0, 4 * r + 1) / (2 * r)
    points = centre + np.concatenate([-tail, middle, tail[::-1]])
    low, high = max(lower, points[0]), min(upper, points[-1])
    if low >= high:  # nobody goes on
        return np.array([min(max(centre, low), high)]), np.zeros(1)
    inner = points[(points > low) & (points < high)]
    ends = np.concatenate([[low], inner, [high]])
    z = np.empty(2 * len(ends) - 1)
    z[::2], z[1::2] = ends, (ends[:-1] + ends[1:]) / 2
    width = np.diff(ends)
    weights = np.zeros_like(z)
    weights[:-1:2] += width / 6
    weights[2::2] += width / 6
    weights[1::2] = 2 * width / 3
    return z, weights
