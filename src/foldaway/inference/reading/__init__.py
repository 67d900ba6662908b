"""How each kind of outcome is read from sums by group, or from the moments that they will come from.

A function gives the arms' levels and their covariance for one kind of error: that of the outcome's kind (`READERS`), or
that of an estimator which is read its own way (`OWN_READERS`). Intervals, relative effects and rounding follow.
"""

from __future__ import annotations

from collections.abc import Callable

from foldaway.inference.levels import Levels
from foldaway.inference.reading.compliers import complier_levels
from foldaway.inference.reading.mean import mean_levels, total_levels
from foldaway.inference.reading.median_of_means import median_levels
from foldaway.inference.reading.quantile import quantile_levels
from foldaway.inference.reading.ratio import ratio_levels
from foldaway.inference.reading.source import Source
from foldaway.inference.reading.survival import survival_levels
from foldaway.plan.vocabulary import COMPLIERS, MEDIAN_OF_MEANS

READERS: dict[str, Callable[[Source], Levels]] = {
    "mean": mean_levels,
    "share": mean_levels,
    "ratio": ratio_levels,
    "quantile": quantile_levels,
    "total": total_levels,
    "survival": survival_levels,
}

OWN_READERS: dict[str, Callable[[Source], Levels]] = {
    COMPLIERS: complier_levels,
    MEDIAN_OF_MEANS: median_levels,
}

__all__ = ["OWN_READERS", "READERS", "Source", "levels_of"]


def levels_of(source: Source) -> Levels:
    """The arms' levels of an outcome, with their covariance.

    Raises:
        EstimateError: They cannot be told, for the reason that the message gives.
    """
    return (OWN_READERS.get(source.estimator) or READERS[source.outcome.KIND])(source)
