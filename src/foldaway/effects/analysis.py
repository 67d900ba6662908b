"""From an arm's tallies to effects: runs every estimator and kind of error that the plan allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from foldaway.effects import Effect, Effects
from foldaway.effects.checks import Checks, assembled, left_out_notes, seen
from foldaway.effects.effect import end, row_of, told
from foldaway.errors import EstimateError
from foldaway.inference.anytime import Anytime
from foldaway.inference.anytime_moments import anytime_of_moments
from foldaway.inference.bootstrap import replicates_of, resampled, sum_variance
from foldaway.inference.claim import claim_of
from foldaway.inference.contrast import Contrast, Estimate, Question
from foldaway.inference.estimators import computation, distribution, estimator
from foldaway.inference.estimators.difference import MeanDifference
from foldaway.inference.few_units import FewUnits, too_few_units
from foldaway.inference.fit import ClusterScores
from foldaway.inference.intervals import critical
from foldaway.inference.levels import ONE_CARRIES, ROUNDING, TOO_SMALL, ArmEffect, Relative, arm_effect, share_of
from foldaway.inference.rounding import INFLATION, STEPS, coarse_p_value, round_count, to_steps, two_digits
from foldaway.inference.sample_ratio import SampleRatio, sample_ratio, sample_ratio_of_records
from foldaway.inference.strata import sample_ratio_of_strata
from foldaway.inference.variance import is_clustered
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan
from foldaway.plan.analysis import errors_of, estimators_of
from foldaway.plan.vocabulary import ERRORS
from foldaway.records.faults import Faults
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.kinds import RECORDS, REPLICATES, UNITS
from foldaway.tallies.pooling import pooling_notes
from foldaway.tallies.scores import Scores

# An error that is this share of the outcome's own, or less, is what rounding leaves of none.
_EXPLAINED = 1e-13

CONSTANT = "all records of an arm have the same value of this outcome, so it has no standard error."
EXPLAINED = (
    "too little variation is left for a standard error: the covariates explain nearly every difference between "
    "records, or a few records have nearly all of the weight."
)
CARRIED = "one record has nearly all of an arm's weight, so there is no standard error."
OUTCOME_TOO_SMALL = (
    "the outcome's values are too close to zero to compute with: squares of numbers below 1e-100 are lost. Record it "
    "in a smaller unit of measure, so that its numbers are larger."
)
_NOTHING = Estimate(*[math.nan] * len(Estimate._fields))

_NO_ODDS = 'An odds ratio needs sums by group: leave out `keep = "moments"`.'


def effects_of(
    plan: Plan,
    arms: Sequence[ArmTally],
    faults: Faults,
    *,
    population: bool = True,
    rounded: bool = False,
    scored: Mapping[str, Sequence[ArmTally]] | None = None,
    notes: Sequence[str] = (),
) -> Effects:
    """Every effect that the plan asks for, and the checks.

    Args:
        plan: The plan.
        arms: The arms' tallies.
        faults: Faulty records left out.
        population: See ``Trial.effects``.
        rounded: Whether they are told to others: see `inference.rounding`.
        scored: By estimator, the same arms with the scores that their clusters gave for its own coefficients, where
            scores were collected instead of kept.
        notes: What else there is to say about the records.
    """
    rows: list[Effect] = []
    for outcome in plan.outcomes:
        (place,) = plan.places(outcome)
        for arm in range(1, len(plan.arms)):
            for name in estimators_of(plan, outcome):
                those = arms if scored is None else scored[name]
                # Of scores that devices send, none tells how the covariates' mean varies between them.
                question = Question(those, list(plan.arms.values()), arm, place, population and scored is None)
                rows += _rows(_Asked(plan, outcome, name, question, rounded))
    # Any of the estimators' arms will do: all know the same clusters.
    ratio = _sample_ratio(plan, arms if not scored else next(iter(scored.values())))
    checks = Checks.of(plan, _counts(plan, arms), ratio, faults)
    checks = checks.told(plan) if rounded else checks
    said = [*_notes(plan, checks.ratio), *pooling_notes(plan, arms[0].pooled), *notes]
    if not rounded:  # to others it would say when the first record came that has a level
        said += left_out_notes(plan, _left_out(plan, arms))
    return assembled(plan, rows, checks, said)


def _left_out(plan: Plan, arms: Sequence[ArmTally]) -> list[int]:
    """The columns of covariates that the pooled regression leaves out, once there are enough records to say so."""
    k = len(plan.regressors)
    if k == 1 or min(arm.n for arm in arms) < 2 * k:
        return []
    question = Question(arms, list(plan.arms.values()), 1, 0)
    left_out = computation("regression").fitted(question).fit.left_out
    return [column - len(arms) for column in left_out if column >= len(arms)]


class _Asked(NamedTuple):
    """One estimator, an arm against the control, an outcome; and whether its rows are told to others."""

    plan: Plan
    outcome: Outcome
    estimator: str
    question: Question
    rounded: bool


class _Found(NamedTuple):
    """An estimate with one kind of error, what else there is to say of it, and why it is withheld if it is."""

    estimate: Estimate
    more: dict[str, Any]
    why: str = ""


def _rows(asked: _Asked) -> list[Effect]:
    """The rows of one estimator, one for each kind of error: what can be told, and why the rest cannot."""
    kinds, carried = errors_of(asked.plan, asked.estimator), _carried(asked.plan, asked.question)
    try:
        answer = estimator(asked.estimator, asked.question)
        point = answer.point()
    except EstimateError as reason:
        nothing = _Found(_NOTHING, {}, carried or str(reason))
        return [_row(asked, kind, nothing) for kind in kinds]
    found = [_found(asked, answer, point, kind, carried) for kind in kinds]
    if asked.rounded:
        found = _told(found)
    return [_row(asked, kind, each) for kind, each in zip(kinds, found, strict=True)]


def _found(asked: _Asked, answer: Contrast, point: Estimate, kind: str, carried: str) -> _Found:
    if why := carried or _too_few(asked.plan, asked.question, kind, answer):
        return _Found(point, {}, why)
    try:
        return _resampled(asked, point) if ERRORS[kind].tally == REPLICATES else _Found(answer.estimate(kind), {})
    except EstimateError as reason:
        return _Found(point, {}, str(reason))


def _told(found: Sequence[_Found]) -> list[_Found]:
    """One estimate with several kinds of error, rounded to a step of the largest of them."""
    step = max((float(two_digits(each.estimate.std_error)) for each in found if not each.why), default=math.nan) / STEPS
    rounded = []
    for each in found:
        exact = each.estimate
        estimate, base = (float(to_steps(value, step)) for value in (exact.estimate, exact.base))
        error, base_error = (float(two_digits(x * INFLATION)) for x in (exact.std_error, exact.base_std_error))
        both = exact.std_error * exact.base_std_error
        correlation = min(max(round(exact.covariance / both, 2), -1.0), 1.0) if both else 0.0
        told_estimate = Estimate(
            estimate, error, float(two_digits(exact.df)), base, base_error, correlation * error * base_error
        )
        relative_error = float(_relative(told_estimate, 1.0).std_error)
        ends = {name: each.more[name] for name in each.more if "_ci_" in name and each.more[name] is not None}
        more = each.more | {
            name: float(to_steps(end, relative_error / STEPS if name.startswith("relative") else step))
            for name, end in ends.items()
        }
        if "percentile_p_value" in more:
            more["percentile_p_value"] = coarse_p_value(more["percentile_p_value"])
            more["relative_std_error"] = float(two_digits(more["relative_std_error"] * INFLATION))
        rounded.append(_Found(told_estimate, more, each.why))
    return rounded


def _resampled(asked: _Asked, point: Estimate) -> _Found:
    """The estimate with the error that the replicates give, and what else they say of it."""
    plan, outcome, name, question, _ = asked
    claim = claim_of(plan, outcome)
    few = FewUnits.of([question.arms[arm] for arm in (0, question.arm)])
    sample = resampled(distribution(name, question), few.expanded(claim.coverage(plan.confidence)), claim)
    errors = {name: getattr(sample, name) for name in ("std_error", "base_std_error", "covariance")}
    others = {name: value for name, value in sample._asdict().items() if name not in errors}
    more = {name: end(value) if "_ci_" in name else value for name, value in others.items()}
    more |= {"percentile_p_value": few.p_value(sample.percentile_p_value, claim.sides), "note": few.note}
    return _Found(point._replace(df=few.df, **errors), more)


def _row(asked: _Asked, kind: str, found: _Found) -> Effect:
    """A row; numbers that do not exist become None here."""
    plan, outcome, name, question, rounded = asked
    exact, more = found.estimate, found.more
    arms, claim = question.arms, claim_of(plan, outcome)
    counts = [round_count(arm.n) if rounded else arm.n for arm in arms]
    write = partial(row_of, plan, outcome, question.arm, (name, kind), counts)
    if why := found.why or _no_error(question, exact, plan.confidence):
        # To others, without an error there is nothing to round to.
        known = (None, None) if rounded else (told(exact.estimate), told(exact.base))
        return write(Anytime(why=why), ArmEffect(*known, reliable=False, why=why, odds_ratio_why=_NO_ODDS))
    reach = critical(claim.coverage(plan.confidence), exact.df)
    relative = _relative(exact, reach)
    point = arm_effect(exact.estimate, exact.base, exact.std_error, exact.df, relative, plan.confidence, claim)
    if point.relative is None:
        more = {name: value for name, value in more.items() if not name.startswith("relative")}
    elif "replicates" in more:  # by their spread
        away = reach * more["relative_std_error"]
        lower, upper = claim.opened(point.relative - away, point.relative + away, of=exact.base)
        point = point._replace(relative_ci_lower=lower, relative_ci_upper=upper)
    point = point._replace(
        control_level=told(point.control_level),
        statistic=told(point.statistic),
        relative_ci_lower=end(point.relative_ci_lower),
        relative_ci_upper=end(point.relative_ci_upper),
        odds_ratio_why=_NO_ODDS,
    )
    units = None
    if is_clustered(kind):  # of all arms, and of the smaller of those compared, whose scores are in the error
        compared = (arms[0], arms[question.arm])
        units = sum(_units(arm).clusters for arm in arms), min(_units(arm).scored for arm in compared)
    anytime = anytime_of_moments(question, exact, units, plan.confidence, plan.anytime_n, claim, rounded=rounded)
    return write(anytime, point, **more)


def _too_few(plan: Plan, question: Question, kind: str, answer: Contrast) -> str:
    """Why there are too few records or units for a kind of error; empty if there are enough."""
    arms = (0, question.arm)
    if is_clustered(kind) and answer.fit.covers(ERRORS[kind].tally):
        return too_few_units(answer.fit, kind, arms, by_arm=isinstance(answer, MeanDifference))
    if ERRORS[kind].tally == REPLICATES and plan.bootstrap is not None:
        # With no more records than replicates in an arm, one who knew the weights could solve them for the outcomes.
        if min(arm.n for arm in question.arms if arm.n) <= plan.bootstrap.replicates:
            return (
                f"bootstrap errors need more records in every arm than the {plan.bootstrap.replicates:,} replicates: "
                "with fewer, these would say too much about single records."
            )
        return FewUnits.of([question.arms[arm] for arm in arms]).why
    return ""


def _carried(plan: Plan, question: Question) -> str:
    """Why weights leave nothing to take an error from; empty if they do not."""
    for arm in (question.arms[0], question.arms[question.arm]):
        if plan.weight is not None and arm.n > 1 and RECORDS in arm.tallies:
            squares = float(cast(Scores, arm.tallies[RECORDS]).vv[0, 0])
            if float(arm.factor.R[0, 0]) ** 4 < ONE_CARRIES * squares:
                return CARRIED
    return ""


def _relative(point: Estimate, reach: float) -> Relative:
    return share_of(point.estimate, point.base, (point.std_error**2, point.base_std_error**2, point.covariance), reach)


def _no_error(question: Question, point: Estimate, confidence: float) -> str:
    """Why an error that was computed is none; empty if it is one."""
    spreads = [_spread(question.arms[arm], question.outcome) for arm in (0, question.arm)]
    size = max(each.size for each in spreads)
    if 0 < size < TOO_SMALL:
        return OUTCOME_TOO_SMALL
    # Of an outcome that is the same for all, the error of an estimator that relies on its level still is one.
    if all(each.own <= ROUNDING * each.size for each in spreads) and not point.std_error > 1e-10 * size:
        return CONSTANT
    if not point.std_error > _EXPLAINED * max(each.own / math.sqrt(each.n) for each in spreads):
        return EXPLAINED
    if not math.isfinite(abs(point.estimate) + critical(confidence, point.df) * point.std_error):
        return "the numbers are too large to work with."
    return ""


class _Spread(NamedTuple):
    """An outcome in an arm: how many records, its size and its distance from the mean, as roots of mean squares."""

    n: int
    size: float
    own: float


def _spread(arm: ArmTally, outcome: int) -> _Spread:
    """Scaled, so that no square is lost."""
    R = arm.raw_factor()
    column = np.abs(R[:, arm.shape.regressors + outcome] / R[0, 0])
    largest = float(column.max()) or 1.0
    return _Spread(arm.n, *(largest * float(np.linalg.norm(part / largest)) for part in (column, column[1:])))


def _counts(plan: Plan, arms: Sequence[ArmTally]) -> dict[str, int]:
    return {name: arm.n for name, arm in zip(plan.arms, arms, strict=True)}


def _units(arm: ArmTally) -> ClusterScores:
    return cast(ClusterScores, arm.tallies[UNITS])


def _sample_ratio(plan: Plan, arms: Sequence[ArmTally]) -> SampleRatio:
    """Of units where they can be counted, since they were randomised; otherwise of records."""
    if plan.strata is not None:
        ratio = sample_ratio_of_strata(plan, _counts_by_stratum(plan, arms))
        # Weights are not counts, and units may have several records: then only counts that fit say something.
        certain = plan.weight is None and (plan.unit is None or plan.one_record_per_unit)
        return ratio if certain else ratio.of_several()
    if all(UNITS in arm.tallies for arm in arms):
        units = {name: _units(arm).clusters for name, arm in zip(plan.arms, arms, strict=True)}
        return sample_ratio(units, plan.arms, "units")
    if plan.unit is None or plan.one_each:
        return sample_ratio(_counts(plan, arms), plan.arms, "records")
    replicates = min(map(replicates_of, arms))
    # The replicates' sums are of weights, whose shares need not be the plan's; and clusters were not randomised.
    if not replicates or plan.weight is not None or plan.cluster is not None:
        return sample_ratio(_counts(plan, arms), plan.arms, "records").of_several()
    one = np.eye(len(plan.regressors))[0]
    squares = sum(sum_variance(arm, one) for arm in arms)
    return sample_ratio_of_records(_counts(plan, arms), plan.arms, squares, replicates)


def _counts_by_stratum(plan: Plan, arms: Sequence[ArmTally]) -> Floats:
    """Strata by arms: the products of the intercept with the strata's columns, and of the first what these leave."""
    assert plan.strata is not None
    columns = [place for place, name in enumerate(plan.regressors) if name.startswith(f"{plan.strata.column}[")]
    products = np.array([np.round(R.T[columns] @ R[:, 0]) for R in (arm.raw_factor() for arm in arms)])
    first = np.array([[arm.n] for arm in arms]) - products.sum(axis=1, keepdims=True)
    counts: Floats = np.concatenate([first, products], axis=1).T
    return counts


def _notes(plan: Plan, ratio: SampleRatio) -> Iterator[str]:
    if ratio.state == "open":
        remedy = (
            "add CR1 to the plan's errors"
            if plan.complete_units
            else "leave out `keep`, which gives sums by group of units, or promise complete_units"
        )
        yield (
            f"It is unknown whether the arms got their share: {seen(ratio)} records expected. This is more than "
            f"chance if every unit has one record, and may be chance if units have several. To check it, {remedy}."
        )
    if plan.clustering is not None and not plan.complete_units:
        remedy = (
            "prefer the bootstrap rows, which are by unit"
            if plan.bootstrap is not None
            else "leave out `keep`, or promise complete_units, for errors by unit"
        )
        yield f"Errors other than the bootstrap's assume that records are independent. If units have several, {remedy}."
