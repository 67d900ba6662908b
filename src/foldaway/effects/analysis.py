"""From an arm's tallies to effects: runs every estimator and kind of error that the plan allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from foldaway.effects import Effect, Effects
from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import replicates_of, resampled, sum_variance
from foldaway.inference.contrast import Answer, Estimate, Question
from foldaway.inference.estimators import distribution, estimator
from foldaway.inference.fit import ClusterScores
from foldaway.inference.intervals import anytime_width, critical, p_value
from foldaway.inference.sample_ratio import SUSPICIOUS, SampleRatio, sample_ratio, sample_ratio_of_records
from foldaway.inference.variance import is_clustered
from foldaway.plan import Plan
from foldaway.plan.analysis import errors_of, estimators_of
from foldaway.plan.vocabulary import CLASSICAL, ERRORS
from foldaway.records.faults import Faults
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.kinds import REPLICATES, UNITS

# What is left of a constant column, next to its length, when its mean is taken out.
_ROUNDING = 1e-14


def effects_of(
    plan: Plan,
    arms: Sequence[ArmTally],
    faults: Faults,
    *,
    population: bool = True,
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
                # Of scores that devices send, none tells how the covariates' mean varies between them.
                question = Question(seen, list(plan.arms.values()), arm, outcome, population and scored is None)
                more, reasons = _rows(plan, question, name)
                rows += more
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
        alarm=alarm_of(ratio),
        notes=[*_notes(plan, arms, ratio, faults), *notes, *withheld],
        plan=plan,
    )


def _rows(plan: Plan, question: Question, name: str) -> tuple[list[Effect], list[tuple[str, str]]]:
    """The rows of one estimator, and what is withheld with its reason."""
    try:
        answer = estimator(name, question)
        answer.estimate(CLASSICAL)
    except EstimateError as reason:
        return [], [(f"No {name} estimate", str(reason))]
    rows, withheld = [], []
    for kind in errors_of(plan, name):
        by_replicates = ERRORS[kind].tally == REPLICATES
        if by_replicates and not _enough_for_bootstrap(plan, question.arms):
            continue
        try:
            point, more = _resampled(plan, question, name, answer) if by_replicates else (answer.estimate(kind), {})
            rows.append(_effect(plan, question, name, kind, point, **more))
        except EstimateError as reason:
            withheld.append((f"No {name} with {kind} errors", str(reason)))
    return rows, withheld


def _resampled(plan: Plan, question: Question, name: str, answer: Answer) -> tuple[Estimate, dict[str, Any]]:
    """The estimate with the error that the replicates give, and what else they say of it."""
    sample = resampled(distribution(name, question), plan.confidence)
    point = answer.estimate(CLASSICAL)._replace(
        std_error=sample.std_error, df=math.inf, relative_std_error=sample.relative_std_error
    )
    return point, {
        "percentile_ci_lower": sample.lower,
        "percentile_ci_upper": sample.upper,
        "percentile_p_value": sample.p_value,
        "relative_percentile_ci_lower": sample.relative_lower,
        "relative_percentile_ci_upper": sample.relative_upper,
        "replicates": sample.used,
        "replicates_left_out": sample.left_out,
    }


def _enough_for_bootstrap(plan: Plan, arms: Sequence[ArmTally]) -> bool:
    """With no more records than replicates in an arm, one who knew the weights could solve them for the outcomes."""
    if plan.bootstrap is None:
        return False
    return min((arm.n for arm in arms if arm.n), default=0) > plan.bootstrap.replicates


def _effect(plan: Plan, question: Question, name: str, kind: str, point: Estimate, **more: Any) -> Effect:
    arms = question.arms
    counted = _units(arms) if is_clustered(kind) else sum(arm.n for arm in arms)
    reach = critical(plan.confidence, point.df)
    anytime = anytime_width(counted, plan.confidence, plan.anytime_n)
    if not point.std_error or _is_constant(arms, question.outcome):  # nothing varies: there is no error
        point = point._replace(std_error=math.nan, relative_std_error=math.nan)
    statistic = point.estimate / point.std_error
    return Effect(
        outcome=plan.outcomes[question.outcome],
        arm=list(plan.arms)[question.arm],
        control=plan.control,
        estimator=name,
        se_kind=kind,
        n=sum(arm.n for arm in arms),
        n_arm=arms[question.arm].n,
        n_control=arms[0].n,
        estimate=point.estimate,
        std_error=point.std_error,
        statistic=statistic,
        df=point.df,
        p_value=p_value(statistic, point.df),
        p_adjusted=None,
        ci_lower=point.estimate - reach * point.std_error,
        ci_upper=point.estimate + reach * point.std_error,
        control_level=point.base,
        relative=point.relative,
        relative_std_error=point.relative_std_error,
        relative_ci_lower=point.relative - reach * point.relative_std_error,
        relative_ci_upper=point.relative + reach * point.relative_std_error,
        anytime_ci_lower=point.estimate - anytime * point.std_error,
        anytime_ci_upper=point.estimate + anytime * point.std_error,
        **more,
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


def alarm_of(ratio: SampleRatio) -> str | None:
    """What to read before any effect, if the arms' counts do not fit."""
    if ratio.ok:
        return None
    cause = "Find out why before you trust any effect."
    if ratio.test == "groups":
        cause = f"Either the randomisation is broken, or an arm changes how many records a unit has. {cause}"
    return (
        f"The arms' {ratio.counted} do not fit the plan's probabilities (p below {SUSPICIOUS}): {_seen(ratio)} "
        f"expected. {cause}"
    )


def _seen(ratio: SampleRatio) -> str:
    return ", ".join(f"{arm} {ratio.observed[arm]:,} for {ratio.expected[arm]:,.0f}" for arm in ratio.observed)


def _notes(plan: Plan, arms: Sequence[ArmTally], ratio: SampleRatio, faults: Faults) -> Iterator[str]:
    if ratio.state == "open":
        yield (
            f"Whether the arms got their share cannot be told: {_seen(ratio)} records expected, which is more than "
            "chance gives if every unit has one record, and may be chance if units have several. To check it, "
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
    yield from notes_on(faults)


def notes_on(faults: Faults) -> Iterator[str]:
    """What to know about faulty records."""
    if faults:
        by_arm = ", ".join(f"{arm or 'arm unknown or unread'} {n:,}" for arm, n in sorted(faults.records.items()) if n)
        yield f"Faulty records left out: {by_arm}. If this depends on the arm, the effects are biased."
