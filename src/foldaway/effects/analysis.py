"""From an arm's tallies to effects: runs every estimator and kind of error that the plan allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
import numpy as np

from foldaway.effects import Effect, Effects
from foldaway.errors import EstimateError
from foldaway.inference.estimators import Comparison, Estimate, Estimator, estimator
from foldaway.inference.fit import ClusterScores
from foldaway.inference.intervals import anytime_width, critical, p_value
from foldaway.inference.offered import BOOTSTRAP, error_kinds, estimators_of
from foldaway.inference.replicate_sums import replicates_of, sum_variance
from foldaway.inference.replicates import distribution
from foldaway.inference.resampled import resampled
from foldaway.inference.sample_ratio import SUSPICIOUS, SampleRatio, sample_ratio, sample_ratio_of_records
from foldaway.inference.variance import is_clustered
from foldaway.plan import Plan
from foldaway.records.faults import Faults
from foldaway.tallies import UNITS
from foldaway.tallies.arm import ArmTally

# What is left of a constant column, next to its length, when its mean is taken out.
_ROUNDING = 1e-14


def effects_of(
    plan: Plan,
    arms: Sequence[ArmTally],
    faults: Faults,
    *,
    population: bool = False,
    scored: Mapping[str, Sequence[ArmTally]] | None = None,
    notes: Sequence[str] = (),
) -> Effects:
    """Every effect that the tallies hold, the checks, and notes on what is withheld and why.

    Args:
        plan: The plan.
        arms: The arms' tallies.
        faults: Faulty records left out.
        population: See ``Trial.effects``.
        scored: By estimator, the same arms with the scores that their clusters gave for its own coefficients, where
            scores were collected instead of kept.
        notes: What else there is to say about the records.
    """
    rows: list[Effect] = []
    withheld: list[str] = []
    for outcome, outcome_name in enumerate(plan.outcomes):
        for arm, arm_name in list(enumerate(plan.arms))[1:]:
            for name in estimators_of(plan):
                seen = arms if scored is None else scored[name]
                comparison = Comparison(seen, list(plan.arms.values()), arm, outcome, population)
                found, reasons = _rows(plan, comparison, name)
                rows += found
                withheld += [f"{what} for {outcome_name}, {arm_name}: {reason}" for what, reason in reasons]
    # Any of the estimators' arms will do: all know the same clusters.
    ratio = _sample_ratio(plan, arms if not scored else next(iter(scored.values())))
    return Effects(
        rows,
        trial=plan.name,
        confidence=plan.confidence,
        counts=_counts(plan, arms),
        sample_ratio=ratio,
        dropped=dict(sorted(faults.records.items())),
        faults=list(faults),
        notes=[*_notes(plan, arms, ratio, faults), *notes, *withheld],
        plan=plan,
    )


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
    if plan.bootstrap is not None and _enough_for_bootstrap(plan, comparison.arms):
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
    """With no more records than replicates in an arm, one who knew the weights could solve them for the outcomes."""
    if plan.bootstrap is None:
        return False
    return min((arm.n for arm in arms if arm.n), default=0) > plan.bootstrap.replicates


def _row(plan: Plan, comparison: Comparison, name: str, kind: str, found: Estimate) -> Effect:
    arms = comparison.arms
    counted = _units(arms) if is_clustered(kind) else sum(arm.n for arm in arms)
    reach = critical(plan.confidence, found.df)
    anytime = anytime_width(counted, plan.confidence, plan.anytime_n)
    if not found.std_error or _is_constant(arms, comparison.outcome):  # nothing varies: there is no error
        found = found._replace(std_error=math.nan, relative_std_error=math.nan)
    statistic = found.estimate / found.std_error
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
    return sum(cast(ClusterScores, arm.tallies[UNITS]).clusters for arm in arms)


def _sample_ratio(plan: Plan, arms: Sequence[ArmTally]) -> SampleRatio:
    """Of units where they can be counted, since they were randomised; otherwise of records."""
    if all(UNITS in arm.tallies for arm in arms):
        units = {name: _units([arm]) for name, arm in zip(plan.arms, arms, strict=True)}
        return sample_ratio(units, plan.arms, "units")
    if plan.unit is None:
        return sample_ratio(_counts(plan, arms), plan.arms, "records")
    replicates = min(map(replicates_of, arms))
    # The replicates' sums are of weights, whose shares need not be the plan's.
    if not replicates or plan.weight is not None:
        return sample_ratio_of_records(_counts(plan, arms), plan.arms, None, 0)
    one = np.eye(len(plan.regressors))[0]
    squares = sum(sum_variance(arm, one) for arm in arms)
    return sample_ratio_of_records(_counts(plan, arms), plan.arms, squares, replicates)


def _is_constant(arms: Sequence[ArmTally], outcome: int) -> bool:
    """Whether an outcome is the same number in every record of an arm, for all arms."""
    columns = [arm.raw_factor()[:, arm.shape.regressors + outcome] for arm in arms if arm.n]
    spreads = [np.linalg.norm(column[1:]) <= _ROUNDING * np.linalg.norm(column) for column in columns]
    return bool(spreads) and all(spreads)


def _remedy(plan: Plan) -> str:
    """What would let units be told apart."""
    if plan.complete_units:
        return "add CR1 to the plan's errors"
    return (
        "promise complete_units"
        if plan.weight is not None
        else "add a bootstrap to the plan, or promise complete_units"
    )


def _notes(plan: Plan, arms: Sequence[ArmTally], ratio: SampleRatio, faults: Faults) -> Iterator[str]:
    seen = ", ".join(f"{arm} {ratio.observed[arm]:,} for {ratio.expected[arm]:,.0f}" for arm in ratio.observed)
    if ratio.state == "fails":
        yield (
            f"The arms' {ratio.counted} do not fit the plan's probabilities (p below {SUSPICIOUS}): {seen} expected. "
            "Find out why before you trust any effect."
        )
    if ratio.state == "open":
        yield (
            f"Whether the arms got their share cannot be told: {seen} records expected, which is more than chance "
            "gives if every unit has one record, and may be chance if units have several. To check it, "
            f"{_remedy(plan)}."
        )
    constant = [name for o, name in enumerate(plan.outcomes) if _is_constant(arms, o)]
    if constant:
        yield f"Within an arm no record differs from another in {', '.join(constant)}, so there is no error to give."
    if plan.bootstrap is not None and not _enough_for_bootstrap(plan, arms):
        yield (
            f"No bootstrap rows until every arm has more records than the {plan.bootstrap.replicates:,} replicates: "
            "with fewer, these would say too much about single records."
        )
    if plan.unit is not None and not plan.complete_units:
        remedy = (
            "prefer the bootstrap rows, which are by unit"
            if plan.bootstrap is not None
            else "add a bootstrap to the plan, or promise complete_units, for errors by unit"
        )
        yield f"All but bootstrap errors take records as independent. If units have several records, {remedy}."
    if faults:
        by_arm = ", ".join(f"{arm or 'arm unknown or unread'} {n:,}" for arm, n in sorted(faults.records.items()) if n)
        yield f"Faulty records left out: {by_arm}. If this depends on the arm, the effects are biased."
