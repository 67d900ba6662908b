"""How much of an error rate has been spent once a share of the planned information is there.

Lan and DeMets ("Discrete sequential boundaries for clinical trials", Biometrika 70, 1983) let a function of the
information say how much of α is spent by each look. The looks need then not be equally far apart, nor known in number:
what is spent at one depends on the information that is there, and on nothing that was observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Spending = str | Sequence[float]
"""The name of a spending function, or what is spent by each of the planned looks."""

OBRIEN_FLEMING = "obrien-fleming"
POCOCK = "pocock"


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
