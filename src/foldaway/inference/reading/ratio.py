"""Ratios: Σu / Σd of an arm, plain or adjusted.

Adjusted, a ratio is that of the adjusted means of u and d. To first order that is the regression of the linearised
ratio (u − R d)/d̄ on the covariates (Deng et al. 2018; Jin and Ba 2021): least squares is linear in the outcome, so the
slopes of u − R d are those of u less R times those of d.
"""

from __future__ import annotations

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.adjusting import fit_start, too_few
from foldaway.inference.blocked_groups import blocked_by_group
from foldaway.inference.group_regression import left_out_levels, spent_by_slopes
from foldaway.inference.jackknife import adjusted_mean, adjusted_means, cells_of, jackknife, jackknifed, mean, ratio
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source
from foldaway.inference.reading.within import cells_within
from foldaway.inference.unequal_arms import contrast_rate, with_freedom
from foldaway.inference.welch import ratio_welch, spread_of, welch
from foldaway.numerics.block import Floats
from foldaway.tallies.predictor import lean
from foldaway.tallies.sums import Sums

# The denominator's mean, in standard errors from zero, below which the linearised ratio is not to be trusted.
_CLEAR = 4


def ratio_levels(source: Source) -> Levels:
    """The arms' ratios."""
    above, below = source.places
    _require_clear(source, below)
    if source.plan.within_sites and source.strata is not None:
        return _within_sites(source, source.strata)
    if not source.adjusts:
        if source.by_group:
            return jackknife(ratio, cells_of(source.sums, above), cells_of(source.sums, below))
        return ratio_welch(source.sums, (above, below))
    if source.cases is not None:
        return _rich(source, above, below)
    cells = [cells_of(source.sums, place) for place in source.places]
    if source.first_order:
        return _divided(adjusted_means(cells[0]), adjusted_means(cells[1]), cells[0].weight)
    spreads = [spread_of(source.sums, place) for place in source.places]
    rates = [contrast_rate(spread) for spread in spreads]
    if not source.by_group:
        levels = ratio_welch(source.sums, (above, below), (float(rates[0].beta), float(rates[1].beta)))
        return with_freedom(levels, rates[0].freedom + rates[1].freedom, spreads[0].effective)
    top, bottom = (
        (adjusted_mean(each.total(), rate.beta), adjusted_mean(each.left_out(), rate.beta))
        for each, rate in zip(cells, rates, strict=True)
    )
    levels = _divided(top, bottom, cells[0].weight)
    records = cells[0].records
    return levels if records is None else levels._replace(n=records.sum(axis=-2))


def _within_sites(source: Source, sites: Sums) -> Levels:
    """The ratio of two means, each combined over sites by their sizes."""
    arms = len(source.plan.arms)
    first, second = (
        cells_within(sites, place, arms, adjusts=source.adjusts, recentred=True, first_order=True)
        for place in source.places
    )
    both = blocked_by_group(*first, second)
    above, below = np.split(both.value, 2)
    by_value = np.hstack([np.diag(1 / below), np.diag(-above / below**2)])
    return Levels(
        above / below,
        by_value @ both.covariance @ by_value.T,
        both.doubt[:arms, :arms],
        both.n[:arms],
        None if both.groups is None else both.groups[:arms],
        why=both.why[:arms],
    )


def _rich(source: Source, above: int, below: int) -> Levels:
    """From moments: the ratio of two regressions, with both fitted anew without each group."""
    assert source.cases is not None
    moments, first = source.cases.of(above)
    second = source.cases.of(below)[1]
    if why := too_few(moments):
        raise EstimateError(why)
    if source.by_group:
        moments = moments.reframed()
        one, two = (left_out_levels(moments, place) for place in (first, second))
        top, bottom = ((each.level + each.value, each.level + each.without) for each in (one, two))
        levels = _divided(top, bottom, moments.moments[..., 0, 0].T)
        return levels._replace(n=moments.records.sum(axis=1), groups=np.minimum(one.shown, two.shown))
    sums: Sums = lean(moments, fit_start(moments).predictor, pairs=((first, second),))
    levels = ratio_welch(sums, (first, second), (1.0, 1.0))
    return with_freedom(levels, spent_by_slopes(moments.reframed()), spread_of(sums, first).effective)


def _divided(above: tuple[Floats, Floats], below: tuple[Floats, Floats], weight: Floats) -> Levels:
    """The ratio of two statistics, each with all groups and without each."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return jackknifed(above[0] / below[0], above[1] / below[1], weight)


def _require_clear(source: Source, below: int) -> None:
    """A ratio has no error to speak of where its denominator may be zero."""
    by_group = source.by_group or source.first_order
    levels = jackknife(mean, cells_of(source.sums, below)) if by_group else welch(spread_of(source.sums, below))
    error = np.sqrt(np.maximum(np.diagonal(levels.covariance), 0))
    here = levels.n > 0
    if np.any(here & ~(np.abs(levels.value) > _CLEAR * np.nan_to_num(error))):
        name = source.plan.values[below].column
        raise EstimateError(f"the denominator {name!r} is zero in an arm, or too close to it for a ratio.")
