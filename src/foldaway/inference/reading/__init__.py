"""How each kind of outcome is read from sums by group, or from the moments that they will come from.

A kind has a function that gives the arms' levels and their covariance for one of its estimators and one kind of error;
`READERS` has a line for it. Errors, intervals, relative effects and rounding follow from the levels.
"""

from __future__ import annotations

from collections.abc import Callable

from foldaway.inference.levels import Levels
from foldaway.inference.reading.compliers import complier_levels
from foldaway.inference.reading.mean import mean_levels, total_levels
from foldaway.inference.reading.quantile import quantile_levels
from foldaway.inference.reading.ratio import ratio_levels
from foldaway.inference.reading.source import Source
from foldaway.plan.vocabulary import ESTIMATORS

READERS: dict[str, Callable[[Source], Levels]] = {
    "mean": mean_levels,
    "share": mean_levels,
    "ratio": ratio_levels,
    "quantile": quantile_levels,
    "total": total_levels,
}

__all__ = ["READERS", "Source", "levels_of"]


def levels_of(source: Source) -> Levels:
    """The arms' levels of an outcome, with their covariance.

    Raises:
        EstimateError: They cannot be told, for the reason that the message gives.
    """
    if ESTIMATORS[source.estimator].of_effects:
        return complier_levels(source)
    return READERS[source.outcome.KIND](source)
