"""Margins that are a percentage of the control's level, which is itself estimated.

Whether an arm's level t is worse than the control's c by more than a share δ of it is a question about t − c ± δc. Its
variance is V(t − c) + δ² V(c) ± 2δ Cov(t − c, c), by the levels' own covariance, and not that of t − c. So what is
tested, t − c against ∓δc as it was found, takes its error as that many times larger. Where it would be smaller, it is
left as it is.
"""

from __future__ import annotations

import math

from foldaway.inference.claim import Claim, claim_of
from foldaway.inference.levels import Levels, difference_of
from foldaway.plan.analysis import Analysis
from foldaway.plan.outcomes import Outcome


def claim_at(plan: Analysis, outcome: Outcome, levels: Levels | None) -> Claim:
    """What the plan asks of an outcome at these levels, the control's first.

    Example:
        >>> import numpy as np
        >>> from foldaway.plan import Mean, Plan
        >>> slow = Mean("y", better="lower", margin="10%")
        >>> plan = Plan(name="t", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=[slow])
        >>> levels = Levels(np.array([20.0, 21.0]), np.diag([0.5, 0.5]), np.eye(2) / 99, np.array([100, 100]))
        >>> claim = claim_at(plan, slow, levels)
        >>> claim.alternative, claim.threshold, round(claim.stretch, 4)
        ('less', 2.0, 1.0512)
    """
    share = outcome.margin_share
    if share is None or levels is None or not math.isfinite(level := float(levels.value[0])):
        return claim_of(plan, outcome)
    own, below = float(difference_of(levels, 1).variance), float(levels.covariance[0, 0])
    both = float(levels.covariance[1, 0]) - below
    asked = claim_of(plan, outcome, level)
    sides = (-share, share) if asked.alternative == "within" else (math.copysign(share, asked.threshold * level),)
    moved = max(own + side**2 * below - 2 * side * both for side in sides)
    return claim_of(plan, outcome, level, math.sqrt(max(moved / own, 1.0)) if own > 0 else 1.0)
