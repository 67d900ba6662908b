"""foldaway: randomised trials that keep no records.

Each record is folded into running tallies the moment it arrives and is then gone; effects, standard errors and
intervals are those of an analysis that kept everything.
"""

from typing import TYPE_CHECKING, Any

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
    WorkerError,
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
    "WorkerError",
    "fold_files",
]

if TYPE_CHECKING:
    from foldaway.sources.folding import fold_files


def __getattr__(name: str) -> Any:
    """Names whose rooms take long to enter are fetched when they are first asked for."""
    if name == "fold_files":
        from foldaway.sources.folding import fold_files

        return fold_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
