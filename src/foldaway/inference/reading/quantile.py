"""Quantiles, from the histogram of their bins."""

from __future__ import annotations

from foldaway.inference.levels import Levels
from foldaway.inference.quantiles import LEAST_BEYOND, Binned, quantiles
from foldaway.inference.reading.source import Source
from foldaway.plan import Quantile

_OUTSIDE = (
    "in an arm, this quantile lies beyond the `bounds` that the plan gives its outcome, or too close to them: values "
    "there are not told apart."
)
_FEW_GROUPS = f"in an arm, fewer than {LEAST_BEYOND} groups of units have records beyond this quantile."
_FEW_RECORDS = f"in an arm, fewer than {LEAST_BEYOND} records lie beyond this quantile."


def quantile_levels(source: Source) -> Levels:
    """The arms' quantiles; where an arm's cannot be told, why."""
    outcome, histogram = source.outcome, source.histogram
    assert isinstance(outcome, Quantile)
    assert histogram is not None
    (p,), (place,) = outcome.quantiles, source.places
    binned = Binned(histogram.counts, outcome.bins.edges, histogram.squares)
    found = quantiles(binned, p, by_group=source.by_group)
    few = _FEW_GROUPS if source.by_group else _FEW_RECORDS
    why = tuple(_OUTSIDE if outside else few if rare else "" for outside, rare in zip(*found[1:], strict=True))
    return found.levels._replace(n=source.sums.counts(place).sum(axis=1), why=why)
