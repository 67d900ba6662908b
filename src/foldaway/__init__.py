"""foldaway: randomised trials that keep no records.

Each record is folded into running tallies the moment it arrives and is then gone; effects, standard errors and
intervals are those of an analysis that kept everything.
"""

from foldaway.effects import Effect, Effects
from foldaway.errors import (
    EstimateError,
    FoldawayError,
    PlanError,
    RecordError,
    SampleRatioWarning,
    SealedError,
    SourceError,
    StateError,
)
from foldaway.least_squares import LeastSquares
from foldaway.plan import Bootstrap, Plan
from foldaway.trial import Trial

__version__ = "0.1.0"

__all__ = [
    "Bootstrap",
    "Effect",
    "Effects",
    "EstimateError",
    "FoldawayError",
    "LeastSquares",
    "Plan",
    "PlanError",
    "RecordError",
    "SampleRatioWarning",
    "SealedError",
    "SourceError",
    "StateError",
    "Trial",
]
