"""Which estimators and errors a plan reports: those that it names, or else all that its settings allow."""

from __future__ import annotations

from foldaway.plan.analysis import Analysis
from foldaway.plan.outcomes import Outcome
from foldaway.plan.vocabulary import DIFFERENCE, ERRORS, ESTIMATORS, JACKKNIFE, MODES, MOMENTS, SUMS, Error


def estimators_of(plan: Analysis, outcome: Outcome | None = None) -> list[str]:
    """The estimators that the plan asks for, or else all that it allows: of one outcome, or of any.

    If units may have several records, the one that has an error for them is always among them.
    """
    offered = (word for word in ESTIMATORS.values() if not word.by_name)
    names = list(plan.estimators) or [word.name for word in offered if word.suits(plan) and errors_of(plan, word.name)]
    if plan.grouped and not any(SUMS in ESTIMATORS[name].sources for name in names if name in ESTIMATORS):
        names.append(DIFFERENCE)
    outcomes = plan.outcomes if outcome is None else [outcome]
    return [name for name in names if any(name in each.READ_BY for each in outcomes)]


def errors_of(plan: Analysis, estimator: str | None = None) -> list[str]:
    """The kinds of standard error that the plan has, or those of one estimator."""
    return [
        word.name
        for word in ERRORS.values()
        if _asks_for(plan, word) and word.suits(plan) and (estimator is None or _serves(plan, word, estimator))
    ]


def _serves(plan: Analysis, word: Error, estimator: str) -> bool:
    one = ESTIMATORS[estimator]
    if word.source == MOMENTS and plan.strata is not None and not one.adjusts:
        return False  # without fixed effects for the strata it would compare what was randomised apart
    return word.serves(one) and (word.name == JACKKNIFE or not one.of_effects)


def tallies_of(plan: Analysis) -> set[str]:
    """The tallies that the plan's errors are read from, but for those that devices send at the end."""
    collected = () if plan.mode is None else MODES[plan.mode].collects
    return {ERRORS[name].tally for name in errors_of(plan)}.difference(collected, [""])


def _asks_for(plan: Analysis, word: Error) -> bool:
    """Whether the plan reports errors of this kind; of those in `errors`, all if it names none.

    One that allows for several records of a unit is always reported: no other may lead.
    """
    if word.name == JACKKNIFE and plan.grouped:
        return True
    if word.setting == "errors":
        return word.name in plan.errors or not (plan.errors or word.by_name)
    return plan.bootstrap is not None
