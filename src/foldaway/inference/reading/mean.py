"""Means and shares, of y or adjusted by what the covariates predict; and totals per assigned unit."""

from __future__ import annotations

from functools import partial

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.adjusting import too_few
from foldaway.inference.group_regression import jackknife_regression, regression_welch
from foldaway.inference.jackknife import adjusted_mean, cells_of, jackknife, jackknife_adjusted, mean, total_per_unit
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source
from foldaway.inference.reading.within import within_strata
from foldaway.inference.unequal_arms import contrast_rate, with_freedom
from foldaway.inference.welch import noisy_shares, spread_of, welch, welch_total
from foldaway.plan import Total
from foldaway.tallies.release import cell_of


def mean_levels(source: Source) -> Levels:
    """The arms' means; adjusted, by all covariates while the trial is rich, and those of y − λ(y − ỹ) after."""
    (place,) = source.places
    cells = cells_of(source.sums, place)
    if source.plan.by_shares:
        whole, scale = cells.total(), cell_of(source.plan).scale
        return noisy_shares(whole.weight, whole.value, whole.level, (scale[0], scale[1 + place]))
    if source.strata is not None and (levels := within_strata(source, source.strata)) is not None:
        return levels
    if not source.adjusts:
        return jackknife(mean, cells) if source.by_group else welch(spread_of(source.sums, place))
    if source.cases is not None:
        moments, within = source.cases.of(place)
        if why := too_few(moments):
            raise EstimateError(why)
        if source.by_group:
            return jackknife_regression(moments.reframed(), within, recentred=source.recentred)
        return regression_welch(moments.reframed(), within)
    if source.first_order:
        return jackknife_adjusted(cells)
    spread = spread_of(source.sums, place)
    rate = contrast_rate(spread)
    if source.by_group:
        return jackknife(partial(adjusted_mean, rate=rate.beta, recentred=source.recentred), cells)
    return with_freedom(welch(spread, rate.beta), rate.freedom, spread.effective)


def total_levels(source: Source) -> Levels:
    """Σv over the arm's probability, and over the number of assigned units where it tells it."""
    (place,) = source.places
    assert isinstance(source.outcome, Total)
    units = float(source.outcome.assigned_units or 1)
    # Within strata, records weigh one over their probability already.
    own = [1.0 if source.plan.strata is not None else share for share in source.plan.arms.values()]
    shares = np.tile(own, source.sums.shape.arms // len(own))
    if source.by_group:
        return jackknife(partial(total_per_unit, probabilities=shares, units=units), cells_of(source.sums, place))
    return welch_total(spread_of(source.sums, place), shares, units)
