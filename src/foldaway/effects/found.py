"""What is found for one row, the levels of the control and an arm or why there are none; and what others are told.

Sums and moments both come to this, so that rows, verdicts and what others are told are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from foldaway.inference.anytime import Watched
from foldaway.inference.bootstrap import Resampled
from foldaway.inference.levels import Levels, difference_of, relative_of
from foldaway.inference.one_look import Carried
from foldaway.inference.rounding import (
    INFLATION,
    STEPS,
    coarse_p_value,
    round_count,
    rounded_levels,
    to_steps,
    two_digits,
)
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome
from foldaway.plan.vocabulary import ESTIMATORS

By = tuple[str, str]
"""An estimator and a kind of error."""


class Found(NamedTuple):
    """What is found for one row.

    Attributes:
        outcome: The outcome.
        arm: The arm's place in the plan.
        by: The estimator and the kind of error.
        counts: By arm, the number of records that have the outcome.
        levels: The control's and the arm's; of an estimator that is a ratio of effects, those of what was received
            after them. None if there are none, as `why` says.
        why: Why there are none.
        no_error: Why these levels have no error; empty if they may have one.
        watched: What the any-time interval is read from.
        carriers: By level, how many people carry it.
        carried: What is known of the records behind the levels; None where Student's t is all that there is.
        few: Why others are not told of it; empty if they are.
        resampled: What the replicates of a bootstrap say beside the levels.
        note: What to know before relying on it.
        noise: Of a release, the variance of the effect that is noise.
        told: Whether this is what others are told.
    """

    outcome: Outcome
    arm: int
    by: By
    counts: Sequence[int]
    levels: Levels | None = None
    why: str = ""
    no_error: str = ""
    watched: Watched = Watched()
    carriers: Floats | float = np.inf
    carried: Carried | None = None
    few: str = ""
    resampled: Resampled | None = None
    note: str | None = None
    noise: float = 0.0
    told: bool = False


def told(found: Iterable[Found]) -> Iterator[Found]:
    """The same as others are told: levels in steps, counts to match, and nothing where too few stand behind it."""
    for (_, _, estimator), rows in groupby(found, key=lambda each: (each.outcome.name, each.arm, each.by[0])):
        those = list(rows)
        kinds = {each.by: each.levels for each in those if each.levels is not None}
        steps = rounded_levels(kinds, np.broadcast_to(those[0].carriers, (_width(kinds),))) if kinds else {}
        for each in those:
            levels = steps.get(each.by)
            if levels is not None and each.levels is not None and ESTIMATORS[estimator].of_effects:
                levels = _with_design(levels, each.levels)
            yield each._replace(
                counts=[round_count(n) for n in each.counts],
                levels=None if each.few else levels,
                why=each.few or each.why,
                watched=_watched(each, levels),
                carried=_carried(each, levels),
                resampled=_resampled(each.resampled, levels),
                told=True,
            )


def _width(kinds: dict[By, Levels]) -> int:
    return len(next(iter(kinds.values())).value)


def _with_design(levels: Levels, exact: Levels) -> Levels:
    """Where nobody of an arm, or everybody, received the treatment, that is the design and nobody's secret."""
    receipt = np.arange(len(exact.value)) >= len(exact.value) // 2
    return levels._replace(value=np.where(receipt & np.isnan(levels.value), exact.value, levels.value))


def _watched(each: Found, shown: Levels | None) -> Watched:
    """What is watched, rounded like what is shown: the difference of levels is that of the levels shown."""
    watched = each.watched
    if watched.levels is None or shown is None:
        return watched
    own = {each.by: watched.levels}
    levels = rounded_levels(own, np.broadcast_to(each.carriers, (2,)))[each.by]
    return watched._replace(
        levels=levels._replace(value=shown.value),
        n=np.array([round_count(n) for n in np.atleast_1d(watched.n)]),
        inflation=None if watched.inflation is None else float(two_digits(watched.inflation)),
    )


def _carried(each: Found, shown: Levels | None) -> Carried | None:
    """What is known of the records, as coarsely: rows are then read by the same rules as the owner's."""
    carried = each.carried
    if carried is None or shown is None:
        return None

    def coarse(levels: Levels) -> Levels:
        return rounded_levels({each.by: levels}, np.broadcast_to(each.carriers, (2,)))[each.by]

    return carried._replace(
        apart=coarse(carried.apart)._replace(value=shown.value),
        plain=None if carried.plain is None else coarse(carried.plain),
        evidence=None if carried.evidence is None else float(two_digits(carried.evidence)),
        size=two_digits(carried.size),
        worth=np.array([float(round_count(n)) for n in carried.worth]),
    )


def _resampled(found: Resampled | None, levels: Levels | None) -> Resampled | None:
    """Ends of percentile intervals in steps of the errors that are told."""
    if found is None or levels is None:
        return found
    step = float(np.sqrt(difference_of(levels, 1).variance)) / STEPS
    relative_step = float(relative_of(levels, 1, 0.95).std_error) / STEPS
    return found._replace(
        percentile_ci_lower=float(to_steps(found.percentile_ci_lower, step)),
        percentile_ci_upper=float(to_steps(found.percentile_ci_upper, step)),
        percentile_p_value=coarse_p_value(found.percentile_p_value) or 0.0,
        relative_std_error=float(two_digits(found.relative_std_error * INFLATION)),
        relative_percentile_ci_lower=float(to_steps(found.relative_percentile_ci_lower, relative_step)),
        relative_percentile_ci_upper=float(to_steps(found.relative_percentile_ci_upper, relative_step)),
    )
