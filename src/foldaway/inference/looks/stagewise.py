"""What a trial with planned looks has found, once it has stopped: p-value, estimate and interval.

A trial stops where z is large, so its plain estimate is too large on average, and its plain p-value too small. By the
stage-wise ordering (Armitage 1957; Tsiatis, Rosner and Mehta, "Exact confidence intervals following a group sequential
test", Biometrics 40, 1984) an end is further out the earlier it comes, and at the same look the larger z is. The
p-value is the probability of an end at least as far out if there is no effect; the estimate is the effect for which
that is one half (median unbiased), and the ends of the interval those for which it is α/2 and 1 − α/2. The p-value is
below α if and only if a boundary was crossed, once all of α is spent; and nothing depends on looks that were not taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from foldaway.inference.looks.boundaries import Walk, root

# Drifts further from z are beyond any interval that is asked for.
_FURTHEST = 16.0


class Ended(NamedTuple):
    """What was found, as drifts: what z is expected to be once all the planned information is there.

    Attributes:
        p_above: How probable an end as far above is, if there is no effect.
        estimate: The median unbiased estimate.
        lower: Where the interval begins.
        upper: Where it ends.
    """

    p_above: float
    estimate: float
    lower: float
    upper: float

    @property
    def p_value(self) -> float:
        """Two-sided."""
        return min(1.0, 2 * min(self.p_above, 1 - self.p_above))


def ended(fractions: Sequence[float], upper: Sequence[float], z: float, confidence: float, *, two_sided: bool) -> Ended:
    """What a trial has found that ended at the last of these looks.

    Args:
        fractions: The information at each look that was taken, as a share of the planned.
        upper: The upper boundary at each look before the last.
        z: The statistic at the last look.
        confidence: The coverage of the interval between its two ends.
        two_sided: Whether the trial would have stopped at the lower boundary too.

    Example:
        >>> found = ended([1.0], [], 2.5, 0.95, two_sided=True)  # of a single look it is the plain test
        >>> round(found.p_value, 4), round(found.estimate, 4), round(found.lower, 4), round(found.upper, 4)
        (0.0124, 2.5, 0.54, 4.46)
        >>> found = ended([0.5, 1.0], [2.9626], 2.5, 0.95, two_sided=True)
        >>> round(found.p_value, 4), round(found.estimate, 4)
        (0.0143, 2.483)
    """

    def above(drift: float) -> float:
        return _above(fractions, upper, z, drift, two_sided=two_sided)

    centre = z / math.sqrt(fractions[-1])
    reach = _FURTHEST / math.sqrt(fractions[0])

    def drift_of(probability: float) -> float:
        return root(lambda drift: above(drift) - probability, centre - reach, centre + reach)

    tail = (1 - confidence) / 2
    return Ended(above(0.0), drift_of(0.5), drift_of(tail), drift_of(1 - tail))


def _above(fractions: Sequence[float], upper: Sequence[float], z: float, drift: float, *, two_sided: bool) -> float:
    """How probable an end is that lies at least as far above, if the drift is this."""
    walk, found = Walk.begin(drift), 0.0
    for fraction, bound in zip(fractions[:-1], upper, strict=True):
        found += walk.above(fraction, bound)
        walk = walk.go_on(fraction, -bound if two_sided else -math.inf, bound)
    return found + walk.above(fractions[-1], z)
