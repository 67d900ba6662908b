"""Ratios: Σu / Σd of an arm."""

from __future__ import annotations

from foldaway.errors import EstimateError
from foldaway.inference.jackknife import cells_of, jackknife, ratio
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source


def ratio_levels(source: Source) -> Levels:
    """The arms' ratios."""
    if source.adjusts or not source.by_group:
        raise EstimateError("a ratio has this error by groups of units alone.")
    above, below = (cells_of(source.sums, place) for place in source.places)
    return jackknife(ratio, above, below)
