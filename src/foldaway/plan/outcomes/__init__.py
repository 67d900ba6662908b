"""What a plan compares between arms: one file for each kind of outcome, and a line for it in `KINDS`.

A kind says which numbers of a record it is computed from (`values`), what it is called if it is given no name, which
estimators read it and what it needs of a plan. The records room makes the values, tallies sum them, and
`foldaway.inference` has the statistic of the kind's name.
"""

from __future__ import annotations

from foldaway.plan.outcomes.binning import Binning
from foldaway.plan.outcomes.bins import Bins
from foldaway.plan.outcomes.bounded import Bounded
from foldaway.plan.outcomes.domain import Domain
from foldaway.plan.outcomes.exits import Exits
from foldaway.plan.outcomes.mean import Mean
from foldaway.plan.outcomes.outcome import Outcome
from foldaway.plan.outcomes.quantile import Quantile
from foldaway.plan.outcomes.ratio import Ratio
from foldaway.plan.outcomes.share import Share
from foldaway.plan.outcomes.survival import Survival
from foldaway.plan.outcomes.total import Total
from foldaway.plan.outcomes.value import Value

KINDS: dict[str, type[Outcome]] = {kind.KIND: kind for kind in (Mean, Share, Ratio, Quantile, Total, Survival)}
Outcome.KINDS.update(KINDS)

__all__ = [
    "KINDS",
    "Binning",
    "Bins",
    "Bounded",
    "Domain",
    "Exits",
    "Mean",
    "Outcome",
    "Quantile",
    "Ratio",
    "Share",
    "Survival",
    "Total",
    "Value",
]
