"""What a plan is offered of the vocabulary: its estimators, the kinds of error of each, and what is kept for them."""

from __future__ import annotations

from foldaway.plan.analysis import Analysis
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, MODES, Error


def estimators_of(plan: Analysis) -> list[str]:
    """The estimators that the plan asks for, or else all that it allows."""
    return list(plan.estimators) or [word.name for word in ESTIMATORS.values() if word.suits(plan)]


def errors_of(plan: Analysis, estimator: str | None = None) -> list[str]:
    """The kinds of standard error that the plan has, or those of one estimator."""
    return [
        word.name
        for word in ERRORS.values()
        if _asks_for(plan, word) and word.suits(plan) and (estimator is None or word.serves(estimator))
    ]


def tallies_of(plan: Analysis) -> set[str]:
    """The tallies that the plan's errors are read from, but for those that devices send at the close."""
    collected = () if plan.mode is None else MODES[plan.mode].collects
    return {ERRORS[name].tally for name in errors_of(plan)}.difference(collected, [""])


def _asks_for(plan: Analysis, word: Error) -> bool:
    """Whether the plan reports errors of this kind; of those in `errors`, all if it names none."""
    match word.setting:
        case "errors":
            return not plan.errors or word.name in plan.errors
        case "leverage":
            return plan.federated is not None and plan.federated.leverage == word.name
        case _:
            return plan.bootstrap is not None
