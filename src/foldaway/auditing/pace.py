"""When a trial of an expected size will be stored and told, and what a smaller cohort would cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from foldaway.errors import many
from foldaway.keeping.cohort import GROWTH
from foldaway.plan import Plan

# A trial that is stored fewer times has much to send again after a crash.
_OFTEN = 5


def pace(plan: Plan, units: int) -> Iterator[str]:
    """Sentences about a trial of so many units, each with one record.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> next(pace(plan, 60))[:41], list(pace(plan, 60))[1][:18]
        ('It is too small for a cohort of 100 units', 'With `cohort = 12`')
    """
    cohort, cell = plan.privacy.cohort, plan.privacy.smallest_cell
    arm, share = min(plan.arms.items(), key=lambda each: each[1])
    if units < cohort:
        yield (
            f"It is too small for a cohort of {many(cohort, 'unit')}: nothing would be stored, and there would be no "
            "effects at the end."
        )
    elif units * share < cell:
        yield (
            f"Arm {arm!r} would have about {many(round(units * share), 'unit')}, fewer than the {cell:,} that "
            "effects need (`smallest_cell`): there would be none."
        )
    else:
        first = max(cohort, math.ceil(cell / share))
        yield (
            f"Tallies would be stored about {_times(units // cohort)}. After a crash, what came since the last time "
            "must be sent again."
        )
        if plan.release is not None:
            yield "Effects would be shown once, when they are released."
        else:
            times = _answers(first, cohort, units)
            yield f"Effects would be shown after about {many(first, 'unit')}, and {_times(times)} in all."
    if (smaller := units // _OFTEN) and units < _OFTEN * cohort:
        yield (
            f"With `cohort = {smaller}` in [privacy], tallies would be stored {_OFTEN} times. That costs secrecy: two "
            f"stored states would differ by {many(smaller, 'unit')}, for whoever has them and the key."
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _answers(first: int, cohort: int, units: int) -> int:
    answers, at = 0, float(first)
    while at <= units:
        answers, at = answers + 1, at + max(cohort, GROWTH * at)
    return answers
