"""Totals per assigned unit."""

from __future__ import annotations

from functools import partial

import numpy as np

from foldaway.inference.jackknife import cells_of, jackknife, total_per_unit
from foldaway.inference.levels import Levels
from foldaway.inference.reading.source import Source
from foldaway.inference.welch import spread_of, welch_total


def total_levels(source: Source) -> Levels:
    """Σv over the arm's probability, and over the number of assigned units where the plan tells it."""
    (place,) = source.places
    units = float(source.plan.assigned_units or 1)
    # Within strata, records weigh one over their probability already.
    own = [1.0 if source.plan.strata is not None else share for share in source.plan.arms.values()]
    shares = np.tile(own, source.sums.shape.arms // len(own))
    if source.by_group:
        return jackknife(partial(total_per_unit, probabilities=shares, units=units), cells_of(source.sums, place))
    return welch_total(spread_of(source.sums, place), shares, units)
