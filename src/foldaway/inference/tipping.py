"""Missing outcomes: how far they would have to lie from the observed to change a finding, and the worst they can do.

Of arm a, the share f_a of its records lacks the outcome. If these lay d_a above the observed ones on average, the
arm's mean would be m_a + f_a d_a, and the effect would move by f_t d_t − f_c d_c. A finding tips where the end of its
interval comes to lie on the threshold; the interval's width is taken as it is (the tipping-point analysis of Yan, Lee
and Li, "Missing data handling methods in medical device clinical trials", Journal of Biopharmaceutical Statistics 19,
2009). Where an outcome has bounds, all that is missing may lie at one of them, which bounds the effect whatever the
reason (Horowitz and Manski, "Nonparametric analysis of randomized experiments with missing covariate and outcome
data", Journal of the American Statistical Association 95, 2000).
"""

from __future__ import annotations

import math


def shift_to(threshold: float, lower: float, upper: float) -> float:
    """By how much an interval would have to move for one of its ends to lie on the threshold: the shorter way.

    Example:
        >>> shift_to(0.0, 0.5, 2.5), shift_to(0.0, -3.0, 1.0), shift_to(0.0, 0.5, math.inf)
        (-0.5, -1.0, -0.5)
    """
    return min((threshold - end for end in (lower, upper) if math.isfinite(end)), key=abs)


def distance(shift: float, missing: float, *, control: bool) -> float | None:
    """How far the missing outcomes of one arm would have to lie from its observed ones to move the effect so far.

    Args:
        shift: By how much the effect is to move.
        missing: The share of the arm's records that lacks the outcome.
        control: Whether it is the control.

    Example:
        >>> distance(-0.5, 0.1, control=False), distance(-0.5, 0.1, control=True), distance(-0.5, 0.0, control=True)
        (-5.0, 5.0, None)
    """
    if not missing:
        return None
    return (-shift if control else shift) / missing


def worst(
    levels: tuple[float, float], missing: tuple[float, float], bounds: tuple[float, float]
) -> tuple[float, float]:
    """Between which numbers the effect lies, whatever is missing, if outcomes have bounds: the control comes first.

    Example:
        >>> low, high = worst((0.2, 0.3), (0.1, 0.2), (0.0, 1.0))
        >>> round(low, 3), round(high, 3)
        (-0.04, 0.26)
    """
    (control, arm), (lost_c, lost_t) = levels, missing
    of_control, of_arm = (
        [(1 - lost) * level + lost * end for end in bounds] for level, lost in ((control, lost_c), (arm, lost_t))
    )
    return of_arm[0] - of_control[1], of_arm[1] - of_control[0]
