"""Means and shares within the strata that units were randomised in, plain or adjusted."""

from __future__ import annotations

from functools import partial

from foldaway.inference.blocked_groups import blocked_by_group, by_stratum, rate_within, spread_within
from foldaway.inference.jackknife import Cells, Statistic, adjusted_mean, cells_of, mean
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source
from foldaway.inference.strata import blocked, spread_by_stratum
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import Spread, spread_of
from foldaway.tallies.sums import Sums


def within_strata(source: Source, strata: Sums) -> Levels | None:
    """The arms' means within strata.

    None if records are independent, and an arm has fewer than two in a stratum.
    """
    (place,), arms = source.places, len(source.plan.arms)
    if source.by_group:
        how = {"adjusts": source.adjusts, "recentred": source.recentred, "first_order": source.first_order}
        cells, statistic = cells_within(strata, place, arms, **how)
        return blocked_by_group(cells, statistic)
    spread = spread_by_stratum(spread_of(strata, place), arms)
    return blocked(spread, _rate(spread) if source.adjusts else None)


def cells_within(
    strata: Sums, place: int, arms: int, *, adjusts: bool, recentred: bool = True, first_order: bool = False
) -> tuple[Cells, Statistic]:
    """The cells of an outcome, by stratum, group and arm, and the statistic of them."""
    cells = by_stratum(cells_of(strata, place), arms)
    if not adjusts:
        return cells, mean
    rate = rate_within(cells) if first_order else _rate(spread_by_stratum(spread_of(strata, place), arms))
    return cells, partial(adjusted_mean, rate=rate, recentred=recentred)


def _rate(spread: Spread) -> float:
    """λ that makes the variance of the differences within strata smallest."""
    return float(contrast_rate(spread_within(spread)).beta)
