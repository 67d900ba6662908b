"""One or two people whose value of a numeric covariate outweighs all others', as sums of its powers show.

Let the values be a = x − c about the middle of the others. If one person's a is X and all others' are far smaller,
Σa³ ≈ X³ and Σa⁴ ≈ X⁴, so that N = (Σa³)⁴/(Σa⁴)³ ≈ 1; of two, X and sX, it is (1 + s³)⁴/(1 + s⁴)³. From X follows the
outcome: Σ a³ y ≈ X³ y. What the others add to it is Σ (a/X)³ y, small if their Σa⁴ is. That is not known apart from
X's, but Σa² is, and of n values with a spread of σ it is about 3nσ⁴.

Within a level, sums of the fourth power are not known: there X³ ≈ Σa³ and X² ≈ Σa² have to do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.tallies.moments.few_values import Powers, moved

_KURTOSIS = 3.0

# Others' fourth powers are at most this share of the person's: their part in Σ (a/X)³ y is then about a tenth of the
# outcome's spread.
_SMALL = 0.1

# The same for the squares that are all there is within a level.
_SMALL_SQUARES = 0.01

# N of two alike, and a little for the others' third powers.
_TWO = 2.1

# Fewer people cannot be told from two who stand out.
_FEWEST = 3

_ROUNDS = 30


def outlying(arm: Powers, column: int) -> list[float]:
    """The values that outweigh all others in an arm: none, one or two.

    They are told by the arm's sums of powers alone, so that they are near the true ones and not exact.
    """
    center, spread = arm.standard(column)
    if not spread:
        return []
    one, x = np.eye(arm.regressors)[[0, column]]
    found, middle = _beside_the_others(arm.moments((x - center * one) / spread), _peaks, _SMALL)
    return [center + spread * (middle + each) for each in found.tolist()]


def outlies_within(arm: Powers, column: int, levels: Floats) -> list[bool]:
    """Of each indicator of a level, whether one value outweighs those of all others who have it."""
    center, spread = arm.standard(column)
    if not spread:
        return [False] * len(levels)
    one, x = np.eye(arm.regressors)[[0, column]]
    moments = arm.moments_within((x - center * one) / spread, levels)
    return [len(_beside_the_others(each, _peak, _SMALL_SQUARES)[0]) > 0 for each in moments]


def _beside_the_others(moments: Floats, peaks: Callable[[Floats], Floats], small: float) -> tuple[Floats, float]:
    """Who stands out from the middle of the others, and that middle, which is found in turn with them."""
    n, middle, nobody = float(moments[0]), 0.0, np.zeros(0)
    if n < _FEWEST:
        return nobody, middle
    for _ in range(_ROUNDS):
        about = moved(moments, middle)
        found = peaks(about)
        if not len(found) or not np.all(np.isfinite(found)):
            return nobody, middle
        step = float(about[1] - found.sum()) / (n - len(found))
        if abs(step) < 1e-12:
            break
        middle += step
    rest = max(float(about[2]) - float((found**2).sum()), 0.0)
    stands = 0 < _KURTOSIS * rest * rest / n <= small * np.abs(found).min() ** 4 or not rest
    return (found, middle) if stands else (nobody, middle)


def _peaks(moments: Floats) -> Floats:
    """One value, or two, that have these sums of third and fourth powers; none if it takes more."""
    third, fourth = float(moments[3]), float(moments[4])
    wanted = third * np.float64(third / fourth) ** 3 if fourth > 0 else np.inf
    if wanted > _TWO:
        return np.zeros(0)
    low, high = -1.0, 1.0
    for _ in range(60):  # N grows with s, from 0 to 2
        s = (low + high) / 2
        low, high = (s, high) if (1 + s**3) ** 4 / (1 + s**4) ** 3 < wanted else (low, s)
    if s**4 < _SMALL:  # one, and others that may be many
        return np.array([fourth / third])
    first = np.copysign((fourth / (1 + s**4)) ** 0.25, third)
    return np.array([first, s * first])


def _peak(moments: Floats) -> Floats:
    """One value that has this sum of third powers, and no more than this sum of squares."""
    value = float(np.cbrt(moments[3]))
    return np.array([np.copysign(min(abs(value), np.sqrt(max(moments[2], 0.0))), value)])
