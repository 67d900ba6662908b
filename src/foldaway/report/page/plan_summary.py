"""What a plan will do, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from foldaway.numerics.block import Shape
from foldaway.plan import Plan
from foldaway.plan.analysis import errors_of, estimators_of
from foldaway.table import text_table
from foldaway.tallies import kinds_of
from foldaway.tallies.arm import ArmTally

WIDTH = 80


def summary(plan: Plan, more: Sequence[str] = ()) -> str:
    """The plan's columns and their roles, its estimators and errors, and what will be kept.

    Args:
        plan: The plan.
        more: Further paragraphs, such as what a federated plan asks of its devices.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> print(summary(plan).splitlines()[0])
        demo is a plan that can be run.
    """
    estimators = [[name, ", ".join(errors_of(plan, name))] for name in estimators_of(plan)]
    return "\n\n".join(
        [
            f"{plan.name} is a plan that can be run.",
            text_table(["column", "role", "detail"], _roles(plan), left=3),
            text_table(["estimator", "standard errors"], estimators, left=2),
            *_bootstrap(plan),
            *(fill(paragraph, WIDTH, break_on_hyphens=False) for paragraph in (*more, _faults(plan), *_kept(plan))),
            f"Fingerprint: {plan.fingerprint}",
        ]
    )


def _roles(plan: Plan) -> list[list[str]]:
    arms = ", ".join(f"{name} {share:.4g}" for name, share in plan.arms.items())
    rows = [[plan.arm, "arm", f"{arms}; {plan.control} is the control"]]
    rows += [[name, "outcome", "compared by its mean"] for name in plan.outcomes]
    for name in plan.covariates:
        levels = plan.levels.get(name)
        rows.append([name, "covariate", f"levels {', '.join(levels)}" if levels else ""])
    if plan.unit:
        rows.append([plan.unit, "unit", "all records of a unit in one batch" if plan.complete_units else ""])
    if plan.weight:
        rows.append([plan.weight, "weight", ""])
    return rows


def _bootstrap(plan: Plan) -> list[str]:
    if plan.bootstrap is None:
        return []
    by = f"by {plan.unit}" if plan.unit else "by record"
    return [f"Bootstrap: {plan.bootstrap.replicates:,} replicates {by}, {plan.bootstrap.weights} weights."]


def _faults(plan: Plan) -> str:
    refused = plan.on_fault == "refuse"
    if plan.federated is None:
        return f"A batch with a faulty record is {'refused whole' if refused else 'folded without it'}."
    device = "A device refuses a faulty record"
    device += "." if refused else ", whatever `on_fault` says: it has nowhere to count it."
    if plan.unit is None:
        return device
    return f"{device} A site {'refuses a batch with one whole' if refused else 'folds its batch without it'}."


def _kept(plan: Plan) -> list[str]:
    if plan.federated is not None:
        return []  # its mode says what the coordinator keeps
    arm = ArmTally.empty(Shape(len(plan.regressors), len(plan.outcomes)), kinds_of(plan))
    return [f"Kept: {len(plan.arms) * arm.size():,} numbers in all, however many records come."]
