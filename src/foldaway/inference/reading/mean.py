"""Means and shares: of y, or adjusted by what the covariates predict."""

from __future__ import annotations

from functools import partial

from foldaway.errors import EstimateError
from foldaway.inference.adjusting import too_few
from foldaway.inference.group_regression import jackknife_regression, regression_welch
from foldaway.inference.jackknife import adjusted_mean, cells_of, jackknife, jackknife_adjusted, mean
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source
from foldaway.inference.strata import blocked, blocks_of
from foldaway.inference.welch import noisy_shares, prediction_rate, spread_of, welch
from foldaway.tallies.release import cell_of


def mean_levels(source: Source) -> Levels:
    """The arms' means; adjusted, the pooled regression's while the trial is rich, and those of y − λ(y − ỹ) after."""
    (place,) = source.places
    cells = cells_of(source.sums, place)
    if source.plan.by_shares:
        whole, scale = cells.total(), cell_of(source.plan).scale
        return noisy_shares(whole.weight, whole.value, whole.level, (scale[0], scale[1 + place]))
    if not source.adjusts:
        if source.strata is not None:
            blocks = blocks_of(source.plan, source.strata, place)
            if not blocks.sparse:
                return blocked(blocks)
        return jackknife(mean, cells) if source.by_group else welch(spread_of(source.sums, place))
    if source.moments is not None:
        moments, within = source.moments.of(place)
        if why := too_few(moments):
            raise EstimateError(why)
        if source.by_group:
            return jackknife_regression(moments.reframed(), within, recentred=source.recentred)
        return regression_welch(moments.reframed(), within)
    if source.first_order:
        return jackknife_adjusted(cells)
    spread = spread_of(source.sums, place)
    rate = prediction_rate(spread)
    if source.by_group:
        return jackknife(partial(adjusted_mean, rate=rate, recentred=source.recentred), cells)
    return welch(spread, rate)
