"""foldaway: randomised trials that keep no records.

Each record is folded into running tallies the moment it arrives and is then gone; effects, standard errors and
intervals are those of an analysis that kept everything.
"""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldaway.errors import (
    EndedError,
    EstimateError,
    FixedWarning,
    FoldawayError,
    LossWarning,
    PlanError,
    RecordError,
    SampleRatioWarning,
    SourceError,
    StateError,
    StreamedWarning,
    TooEarly,
    Unreleased,
    WorkerError,
)
from foldaway.lending import lend

if TYPE_CHECKING:
    from foldaway.effects import Effects
    from foldaway.engines.sql.query import fold_query
    from foldaway.least_squares import LeastSquares
    from foldaway.plan import (
        Coefficients,
        Federated,
        Looks,
        Mean,
        Moments,
        Plan,
        Privacy,
        Quantile,
        Ratio,
        Release,
        Share,
        Strata,
        Survival,
        Total,
    )
    from foldaway.planning import power
    from foldaway.sources.runs.folding import fold_files
    from foldaway.trial import Trial

__version__ = "0.2.0"

__all__ = [
    "Coefficients",
    "Effects",
    "EndedError",
    "EstimateError",
    "Federated",
    "FixedWarning",
    "FoldawayError",
    "LeastSquares",
    "Looks",
    "LossWarning",
    "Mean",
    "Moments",
    "Plan",
    "PlanError",
    "Privacy",
    "Quantile",
    "Ratio",
    "RecordError",
    "Release",
    "SampleRatioWarning",
    "Share",
    "SourceError",
    "StateError",
    "Strata",
    "StreamedWarning",
    "Survival",
    "TooEarly",
    "Total",
    "Trial",
    "Unreleased",
    "WorkerError",
    "fold_files",
    "fold_query",
    "power",
]

# What is loaded on first use, so that `import foldaway` and `foldaway --help` are quick; all else is of a plan.
_HOMES = {
    "Effects": "effects",
    "LeastSquares": "least_squares",
    "Trial": "trial",
    "fold_files": "sources.runs.folding",
    "fold_query": "engines.sql.query",
    "power": "planning",
}


def _at(home: str, name: str) -> Any:
    return getattr(import_module(f"foldaway.{home}"), name)


# What a plan does with the help of rooms that are above it.
lend(
    calibrated=partial(_at, "calibrating", "calibrated"),
    calibrated_by_query=partial(_at, "engines.sql.query", "calibrated"),
    statement=partial(_at, "engines.sql.statement", "statement"),
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = _at(_HOMES.get(name, "plan"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
