"""The attack on histograms: read them. Each record's value is in there, to the width of its bin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foldaway.auditing.finding import Finding, Range
from foldaway.plan import Plan
from foldaway.tallies.histogram import Histogram

NAME = "histograms"


def attack_histograms(
    plan: Plan, histograms: Sequence[Histogram], before: Sequence[Histogram] | None = None
) -> Iterator[Finding]:
    """How many records have their value told to within a tenth, without a name; or those between two states."""
    for place, bins in enumerate(plan.bins):
        counts = histograms[place].counts - (0 if before is None else before[place].counts)
        if plan.weighted:  # a sum of weights is at least one record's
            counts = (counts > 0).astype(np.float64)
        near = [Range(low, high).near for low, high in zip(bins.edges[:-1], bins.edges[1:], strict=True)]
        if people := round(float(counts[..., 1:-1][..., near].sum())):
            yield Finding(
                attack=NAME,
                outcome=bins.column,
                exact=0,
                near=people,
                claims=people,
                numbers="the number of records by arm, group and bin, from which quantiles are read",
                remedy="Quantiles need the values themselves, though of nobody in particular: seal the trial when it "
                "ends. A coarser `resolution` tells less, and shares above a few thresholds tell far less.",
            )
