"""An outcome that is compared by its total, in place of its mean."""

from __future__ import annotations


class Total(str):
    """A column whose total per assigned unit is compared: Σv of an arm over the arm's probability.

    It needs no denominator. So it is the right question where the treatment changes how many records a unit has, such
    as revenue over all visits: a mean per record would then compare unlike records. It is noisier than a mean.

    Example:
        >>> from foldaway.plan import Plan
        >>> arms = {"a": 0.5, "b": 0.5}
        >>> plan = Plan(name="demo", arm="g", arms=arms, outcomes=["bought", Total("revenue")], unit="user")
        >>> plan.outcomes, plan.totals
        (('bought', 'revenue'), ('revenue',))
    """

    __slots__ = ()
