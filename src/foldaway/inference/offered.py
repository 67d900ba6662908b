"""What a plan is offered: its estimators, and the kinds of standard error of each."""

from __future__ import annotations

from foldaway.inference.estimators import ESTIMATORS
from foldaway.plan import Plan

BOOTSTRAP = "bootstrap"


def estimators_of(plan: Plan) -> list[str]:
    """The estimators that the plan asks for, or else all that it allows."""
    if plan.estimators:
        return list(plan.estimators)
    return [name for name in ESTIMATORS if plan.covariates or name in ("ipw", "difference")]


def error_kinds(plan: Plan, name: str) -> list[str]:
    """The kinds of standard error for an estimator."""
    if plan.federated is not None:
        return ["CR0", "CR1", *([] if plan.federated.leverage is None else [plan.federated.leverage])]
    kinds = ["classical", "HC0", "HC1"]
    if name == "difference" and plan.weight is None:  # leverage is 1/n of the arm only without weights
        kinds.append("HC2")
    kinds += ["CR0", "CR1"] if plan.complete_units else []
    return [kind for kind in kinds if not plan.errors or kind in plan.errors]
