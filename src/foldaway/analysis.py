"""From an arm's tallies to effects: runs every estimator and kind of error that the plan allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from foldaway.effects import Effect, Effects
from foldaway.errors import EstimateError
from foldaway.inference.estimators import ESTIMATORS, Comparison, Estimate, Estimator, estimator
from foldaway.inference.intervals import anytime_width, critical, p_value
from foldaway.inference.replicates import distribution
from foldaway.inference.resampled import resampled
from foldaway.inference.sample_ratio import SampleRatio, sample_ratio
from foldaway.inference.variance import is_clustered
from foldaway.plan import Plan
from foldaway.records.faults import Faults
from foldaway.tallies import UNITS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.scores import Scores

BOOTSTRAP = "bootstrap"


def effects_of(plan: Plan, arms: Sequence[ArmTally], faults: Faults, *, population: bool = False) -> Effects:
    """Every effect that the tallies hold, the checks, and notes on what is withheld and why."""
    rows: list[Effect] = []
    withheld: list[str] = []
    for outcome, outcome_name in enumerate(plan.outcomes):
        for arm, arm_name in list(enumerate(plan.arms))[1:]:
            comparison = Comparison(arms, list(plan.arms.values()), arm, outcome, population)
            for name in estimators_of(plan):
                found, reasons = _rows(plan, comparison, name)
                rows += found
                withheld += [f"{what} for {outcome_name}, {arm_name}: {reason}" for what, reason in reasons]
    ratio = _sample_ratio(plan, arms)
    return Effects(
        rows,
        trial=plan.name,
        confidence=plan.confidence,
        counts=_counts(plan, arms),
        sample_ratio=ratio,
        dropped=dict(sorted(faults.records.items())),
        faults=list(faults),
        notes=[*_notes(plan, arms, ratio, faults), *withheld],
    )


def estimators_of(plan: Plan) -> list[str]:
    """The estimators that the plan asks for, or else all that it allows."""
    if plan.estimators:
        return list(plan.estimators)
    return [name for name in ESTIMATORS if plan.covariates or name in ("ipw", "difference")]


def error_kinds(plan: Plan, name: str) -> list[str]:
    """The kinds of standard error for an estimator."""
    kinds = ["classical", "HC0", "HC1"]
    if name == "difference" and plan.weight is None:  # leverage is 1/n of the arm only without weights
        kinds.append("HC2")
    return kinds + (["CR0", "CR1"] if plan.complete_units else [])


def _rows(plan: Plan, comparison: Comparison, name: str) -> tuple[list[Effect], list[tuple[str, str]]]:
    """The rows of one estimator, and what is withheld with its reason."""
    try:
        chosen = estimator(name, comparison)
        chosen.estimate("classical")
    except EstimateError as reason:
        return [], [(f"No {name} estimate", str(reason))]
    rows, withheld = [], []
    for kind in error_kinds(plan, name):
        try:
            rows.append(_row(plan, comparison, name, kind, chosen.estimate(kind)))
        except EstimateError as reason:
            withheld.append((f"No {name} with {kind} errors", str(reason)))
    if plan.resampling is not None and _enough_for_bootstrap(plan, comparison.arms):
        try:
            rows.append(_bootstrap_row(plan, comparison, name, chosen))
        except EstimateError as reason:
            withheld.append((f"No {name} with {BOOTSTRAP} errors", str(reason)))
    return rows, withheld


def _bootstrap_row(plan: Plan, comparison: Comparison, name: str, chosen: Estimator) -> Effect:
    found = resampled(distribution(name, comparison), plan.confidence)
    point = chosen.estimate("classical")._replace(
        std_error=found.std_error, df=math.inf, relative_std_error=found.relative_std_error
    )
    return msgspec.structs.replace(
        _row(plan, comparison, name, BOOTSTRAP, point),
        percentile_ci_lower=found.lower,
        percentile_ci_upper=found.upper,
        percentile_p_value=found.p_value,
        relative_percentile_ci_lower=found.relative_lower,
        relative_percentile_ci_upper=found.relative_upper,
        replicates=found.used,
        replicates_left_out=found.left_out,
    )


def _enough_for_bootstrap(plan: Plan, arms: Sequence[ArmTally]) -> bool:
    """With no more records than replicates, one who knew the weights could solve the replicates for the outcomes."""
    return plan.resampling is not None and sum(arm.n for arm in arms) > plan.resampling.replicates


def _row(plan: Plan, comparison: Comparison, name: str, kind: str, found: Estimate) -> Effect:
    arms = comparison.arms
    counted = _units(arms) if is_clustered(kind) else sum(arm.n for arm in arms)
    reach = critical(plan.confidence, found.df)
    anytime = anytime_width(counted, plan.confidence, plan.anytime_n)
    statistic = found.estimate / found.std_error if found.std_error else float("nan")
    return Effect(
        outcome=plan.outcomes[comparison.outcome],
        arm=list(plan.arms)[comparison.arm],
        control=plan.control,
        estimator=name,
        se_kind=kind,
        n=sum(arm.n for arm in arms),
        n_arm=arms[comparison.arm].n,
        n_control=arms[0].n,
        estimate=found.estimate,
        std_error=found.std_error,
        statistic=statistic,
        df=found.df,
        p_value=p_value(statistic, found.df),
        p_adjusted=None,
        ci_lower=found.estimate - reach * found.std_error,
        ci_upper=found.estimate + reach * found.std_error,
        control_level=found.base,
        relative=found.relative,
        relative_std_error=found.relative_std_error,
        relative_ci_lower=found.relative - reach * found.relative_std_error,
        relative_ci_upper=found.relative + reach * found.relative_std_error,
        anytime_ci_lower=found.estimate - anytime * found.std_error,
        anytime_ci_upper=found.estimate + anytime * found.std_error,
    )


def _counts(plan: Plan, arms: Sequence[ArmTally]) -> dict[str, int]:
    return {name: arm.n for name, arm in zip(plan.arms, arms, strict=True)}


def _units(arms: Sequence[ArmTally]) -> int:
    return sum(cast(Scores, arm.tallies[UNITS]).clusters for arm in arms)


def _sample_ratio(plan: Plan, arms: Sequence[ArmTally]) -> SampleRatio:
    """Of units where they can be counted, since they were randomised; otherwise of records."""
    if not plan.complete_units:
        return sample_ratio(_counts(plan, arms), plan.arms, "records")
    units = {name: _units([arm]) for name, arm in zip(plan.arms, arms, strict=True)}
    return sample_ratio(units, plan.arms, "units")


def _notes(plan: Plan, arms: Sequence[ArmTally], ratio: SampleRatio, faults: Faults) -> Iterator[str]:
    if not ratio.ok:
        seen = ", ".join(f"{arm} {ratio.observed[arm]:,} for {ratio.expected[arm]:,.0f}" for arm in ratio.observed)
        yield (
            f"The arms' {ratio.counted} do not fit the plan's probabilities (p = {ratio.p_value:.2g}): {seen} "
            "expected. Find out why before you trust any effect."
        )
    if plan.resampling is not None and not _enough_for_bootstrap(plan, arms):
        yield (
            f"No bootstrap rows until there are more records than the {plan.resampling.replicates:,} replicates: "
            "with fewer, the replicates would say too much about single records."
        )
    if plan.unit is not None and not plan.complete_units:
        remedy = (
            "prefer the bootstrap rows, which are by unit"
            if plan.resampling is not None
            else "add a bootstrap to the plan, or promise complete_units, for errors by unit"
        )
        yield f"All but bootstrap errors take records as independent. If units have several records, {remedy}."
    if faults:
        by_arm = ", ".join(f"{arm or 'no known arm'} {n:,}" for arm, n in sorted(faults.records.items()) if n)
        yield f"Faulty records left out: {by_arm}. If this depends on the arm, the effects are biased."
