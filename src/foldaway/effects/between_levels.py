"""Whether an arm's effects differ between levels of a segment, as each level is read by the estimator that leads.

Of means and shares the variances are those of `inference/alexander_govern.py`, blended as in `inference/blended.py`. If
they are adjusted, all levels have one λ: of a level's few records it would be chosen badly. Other kinds of outcome, and
effects within strata, are compared by each level's own effect and error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foldaway.effects.from_sums import SumsRead
from foldaway.errors import EstimateError
from foldaway.inference.alexander_govern import Differing, differing, effects_differ, means_by_level
from foldaway.inference.anytime import evidence_of
from foldaway.inference.blocked_groups import spread_within
from foldaway.inference.jackknife import cells_of
from foldaway.inference.levels import difference_of, over
from foldaway.inference.reading.compliers import complier_effect
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import Spread, spread_of, welch
from foldaway.plan import Outcome
from foldaway.plan.vocabulary import ESTIMATORS, JACKKNIFE


def levels_differ(levels: Sequence[SumsRead], outcome: Outcome, estimator: str, kind: str, arm: int) -> Differing:
    """The test, for the levels that are to be compared.

    Args:
        levels: What each level's sums say.
        outcome: The outcome.
        estimator: The estimator.
        kind: The kind of error.
        arm: The arm.
    """
    of_effects, first_order = ESTIMATORS[estimator].of_effects, any(each.first_order for each in levels)
    within = any(each.strata is not None for each in levels)
    if outcome.KIND not in ("mean", "share") or of_effects or first_order or within:
        return differing(*np.array([_effect(each, outcome, estimator, kind, arm) for each in levels]).T)
    (place,), pair = levels[0].plan.places(outcome), np.array([0, arm])
    sums = [each.plain for each in levels]
    spread = _stacked([spread_of(each, place) for each in sums], pair)
    rate = float(contrast_rate(spread_within(spread)).beta) if ESTIMATORS[estimator].adjusts else 0.0
    if kind == JACKKNIFE:
        cells = [cells_of(each, place) for each in sums]
        weight = np.stack([each.weight[:, pair] for each in cells])
        value = np.stack([each.value[:, pair] for each in cells])
        if rate:
            adjusted = np.stack([each.adjusted[:, pair] for each in cells if each.adjusted is not None])
            value = value - rate * (value - adjusted)
        means = means_by_level(weight, value)
    else:
        means = welch(_blend(spread, rate))
    carriers = np.array([float(evidence_of(each, place, pair)) for each in sums])
    size = np.stack([over(each.absolute[pair, place], each.weights(place)[pair].sum(axis=1)) for each in sums])
    return effects_differ(means, 1, carriers=carriers, size=size)


def _effect(level: SumsRead, outcome: Outcome, estimator: str, kind: str, arm: int) -> tuple[float, float, float]:
    """A level's effect, its variance and how well this is known."""
    try:
        found = level.exact((estimator, kind), outcome, recentred=False)
    except EstimateError:  # by the estimator that leads elsewhere, such as a ratio to nothing
        return np.nan, np.nan, np.nan
    if not ESTIMATORS[estimator].of_effects:
        estimate, variance, df = (float(each) for each in difference_of(found, arm))
        return estimate, variance, df
    effect = complier_effect(found, arm, level.plan.confidence)
    estimate, error, df = (np.nan if each is None else each for each in (effect.estimate, effect.std_error, effect.df))
    return estimate, error**2, df


def _stacked(spreads: Sequence[Spread], pair: NDArray[np.intp]) -> Spread:
    """Of these arms, levels on the first axis."""
    n, weight, mean, products = (
        np.stack([np.asarray(getattr(each, name))[pair] for each in spreads]) for name in Spread._fields[:4]
    )
    worth = [each.effective if each.effective is not None else each.n for each in spreads]
    return Spread(n, weight, mean, products, spreads[0].level, np.stack([each[pair] for each in worth]))


def _blend(spread: Spread, rate: float) -> Spread:
    """That of y − λ(y − ỹ), as of an outcome that is not adjusted."""
    parts = np.array([1 - rate, rate])[: spread.mean.shape[-1]]
    products = np.einsum("i,...ij,j->...", parts, spread.products, parts)
    return spread._replace(mean=(spread.mean @ parts)[..., None], products=products[..., None, None], level=np.zeros(1))
