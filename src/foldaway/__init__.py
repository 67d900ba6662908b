"""foldaway: randomised trials that keep no records.

Each record is folded into running tallies the moment it arrives and is then gone; effects, standard errors and
intervals are those of an analysis that kept everything.
"""

from typing import TYPE_CHECKING, Any

from foldaway.calibrating import Calibration
from foldaway.effects import Effect, Effects, Verdict
from foldaway.errors import (
    EstimateError,
    FoldawayError,
    LossWarning,
    PlanError,
    RecordError,
    SampleRatioWarning,
    SealedError,
    SourceError,
    StateError,
    TooEarly,
    Unreleased,
    WorkerError,
)
from foldaway.least_squares import LeastSquares
from foldaway.plan import (
    Bootstrap,
    Coefficients,
    Federated,
    Mean,
    Outcome,
    Plan,
    Privacy,
    Quantile,
    Ratio,
    Release,
    Share,
    Strata,
    Total,
)
from foldaway.planning import Baseline, Power, power
from foldaway.trial import Trial, saved_effects

if TYPE_CHECKING:
    from foldaway.sources.query import fold_query
    from foldaway.sources.runs.folding import fold_files

__version__ = "0.1.0"

__all__ = [
    "Baseline",
    "Bootstrap",
    "Calibration",
    "Coefficients",
    "Effect",
    "Effects",
    "EstimateError",
    "Federated",
    "FoldawayError",
    "LeastSquares",
    "LossWarning",
    "Mean",
    "Outcome",
    "Plan",
    "PlanError",
    "Power",
    "Privacy",
    "Quantile",
    "Ratio",
    "RecordError",
    "Release",
    "SampleRatioWarning",
    "SealedError",
    "Share",
    "SourceError",
    "StateError",
    "Strata",
    "TooEarly",
    "Total",
    "Trial",
    "Unreleased",
    "Verdict",
    "WorkerError",
    "fold_files",
    "fold_query",
    "power",
    "saved_effects",
]

# What reads from elsewhere is loaded on first use, to keep `import foldaway` light.
_LATER = {"fold_files": "foldaway.sources.runs.folding", "fold_query": "foldaway.sources.query"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)
