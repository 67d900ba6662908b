"""What the arms' moments say: by estimator and kind of error, the levels of the control and an arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from foldaway.effects.checks import left_out_notes
from foldaway.effects.found import Found
from foldaway.effects.reasons import CARRIED, CONSTANT, EXPLAINED, OUTCOME_TOO_SMALL
from foldaway.errors import EstimateError
from foldaway.inference.anytime import (
    ENOUGH,
    LEAST_GROUPS_ANYTIME,
    Watched,
    anytime_variance,
    evidence,
    waiting,
)
from foldaway.inference.bootstrap import resampled
from foldaway.inference.contrast import Contrast, EffectAndLevel, Question
from foldaway.inference.estimators import computation, distribution, estimator
from foldaway.inference.estimators.difference import MeanDifference
from foldaway.inference.few_units import FewUnits, too_few_units
from foldaway.inference.fit import ClusterScores
from foldaway.inference.intervals import critical
from foldaway.inference.levels import ONE_CARRIES, ROUNDING, TOO_SMALL, Levels, difference_of
from foldaway.inference.margin import claim_at
from foldaway.inference.variance import is_clustered
from foldaway.plan import Outcome, Plan
from foldaway.plan.reported import errors_of, estimators_of
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, MOMENTS
from foldaway.tallies.moments import RECORDS, REPLICATES, UNITS, ArmTally, Scores, pooling_notes

# An error that is this share of the outcome's own, or less, is what rounding leaves of none.
_EXPLAINED = 1e-13

# Sums of a 0/1 outcome and of its squares agree but for rounding.
_BINARY = 1e-9

_LOWER_BOUND = (
    " If the outcome takes both signs, moments give only a lower bound of that number; a plan without `moments` can "
    "tell."
)


class MomentsRead(NamedTuple):
    """The moments of a trial's arms, as they are read.

    Attributes:
        plan: The plan.
        arms: The arms' tallies.
        population: See ``Trial.effects``.
        scored: By estimator, the same arms with the scores that their clusters gave for its own coefficients, where
            scores were collected instead of kept.
    """

    plan: Plan
    arms: Sequence[ArmTally]
    population: bool = True
    scored: Mapping[str, Sequence[ArmTally]] | None = None

    @property
    def all_counts(self) -> list[int]:
        """The number of records, by arm."""
        return [arm.n for arm in self.arms]

    def found(self) -> Iterator[Found]:
        """What they say, row by row."""
        for outcome in self.plan.outcomes:
            (place,) = self.plan.places(outcome)
            for arm in range(1, len(self.plan.arms)):
                for name in [each for each in estimators_of(self.plan, outcome) if MOMENTS in ESTIMATORS[each].sources]:
                    those = self.arms if self.scored is None else self.scored[name]
                    # Of scores that devices send, none tells how the covariates' mean varies between them.
                    population = self.population and self.scored is None
                    question = Question(those, list(self.plan.arms.values()), arm, place, population)
                    yield from _of_estimator(self, outcome, name, question)

    def units(self) -> dict[str, int] | None:
        """By arm the number of units, where every one is counted."""
        # Any of the estimators' arms will do: all know the same clusters.
        arms = next(iter(self.scored.values())) if self.scored else self.arms
        if not all(UNITS in arm.tallies and arm.tallies[UNITS].n == arm.n for arm in arms):
            return None
        return {name: _units(arm).clusters for name, arm in zip(self.plan.arms, arms, strict=True)}

    def notes(self) -> list[str]:
        """Which levels were pooled."""
        return list(pooling_notes(self.plan, self.arms[0].pooled))

    def left_out_notes(self) -> list[str]:
        """The columns of covariates that the pooled regression leaves out, once there are enough records to say so."""
        k = len(self.plan.regressors)
        if k == 1 or min(self.all_counts) < 2 * k:
            return []
        question = Question(self.arms, list(self.plan.arms.values()), 1, 0)
        left_out = computation("regression").fitted(question).fit.left_out
        return left_out_notes(self.plan, [column - len(self.arms) for column in left_out if column >= len(self.arms)])


def _of_estimator(moments: MomentsRead, outcome: Outcome, name: str, question: Question) -> Iterator[Found]:
    """What one estimator says, with each kind of error; or why it does not."""
    plan, place = moments.plan, question.outcome
    arms = [question.arms[0], question.arms[question.arm]]
    carried = _carried(plan, arms)
    carriers = np.array([_carriers(arm, place) for arm in arms])
    kinds = [kind for kind in errors_of(plan, name) if ERRORS[kind].source == MOMENTS]
    try:
        answer = estimator(name, question)
        point = answer.point()
    except EstimateError as reason:
        for kind in kinds:
            yield Found(outcome, question.arm, (name, kind), moments.all_counts, why=carried or str(reason))
        return
    for kind in kinds:
        by, levels = (name, kind), _levels(point, arms)
        found = Found(outcome, question.arm, by, moments.all_counts, levels, carriers=carriers)
        if why := carried or _too_few(plan, question, kind, answer):
            yield found._replace(no_error=why)
            continue
        try:
            if ERRORS[kind].tally == REPLICATES:
                found = _with_replicates(plan, question, found, point)
            else:
                found = found._replace(levels=_levels(answer.estimate(kind), arms))
        except EstimateError as reason:
            yield found._replace(no_error=str(reason))
            continue
        assert found.levels is not None
        no_error = _no_error(arms, place, found.levels, plan.confidence)
        yield found._replace(no_error=no_error, watched=_watched(question, kind, found.levels))


def _levels(point: EffectAndLevel, arms: Sequence[ArmTally]) -> Levels:
    """An effect and the control's level as two levels: the control's, and the effect on top of it."""
    own, below, both = point.std_error**2, point.base_std_error**2, point.covariance
    covariance = np.array([[below, below + both], [below + both, own + below + 2 * both]])
    away = np.array([0.0, point.estimate])
    n = np.array([arm.n for arm in arms], dtype=np.float64)
    return Levels(point.base + away, covariance, np.full((2, 2), 1 / point.df), n, away=away, why=("", ""))


def _with_replicates(plan: Plan, question: Question, found: Found, point: EffectAndLevel) -> Found:
    """The levels with the error that the replicates give, and what else they say of it."""
    arms = [question.arms[0], question.arms[question.arm]]
    claim = claim_at(plan, found.outcome, _levels(point, arms))
    few = FewUnits.of(arms)
    sample = resampled(distribution(found.by[0], question), few.expanded(claim.coverage(plan.confidence)), claim)
    errors = {name: getattr(sample, name) for name in ("std_error", "base_std_error", "covariance")}
    p_value = few.p_value(sample.percentile_p_value, claim.sides)
    return found._replace(
        levels=_levels(point._replace(df=few.df, **errors), arms),
        resampled=sample._replace(percentile_p_value=p_value),
        note=few.note,
    )


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


def _carried(plan: Plan, arms: Sequence[ArmTally]) -> str:
    """Why weights leave nothing to take an error from; empty if they do not."""
    for arm in arms:
        if plan.weight is not None and arm.n > 1 and RECORDS in arm.tallies:
            squares = float(cast(Scores, arm.tallies[RECORDS]).vv[0, 0])
            if float(arm.factor.R[0, 0]) ** 4 < ONE_CARRIES * squares:
                return CARRIED
    return ""


def _no_error(arms: Sequence[ArmTally], place: int, levels: Levels, confidence: float) -> str:
    """Why an error that was computed is none; empty if it is one."""
    estimate, variance, df = (float(x) for x in difference_of(levels, 1))
    error = math.sqrt(variance)
    spreads = [_Spread.of(arm, place) for arm in arms]
    size = max(each.size for each in spreads)
    if 0 < size < TOO_SMALL:
        return OUTCOME_TOO_SMALL
    # Of an outcome that is the same for all, the error of an estimator that relies on its level still is one.
    if all(each.own <= ROUNDING * each.size for each in spreads) and not error > 1e-10 * size:
        return CONSTANT
    if not error > _EXPLAINED * max(each.own / math.sqrt(each.n) for each in spreads):
        return EXPLAINED
    if not math.isfinite(abs(estimate) + critical(confidence, df) * error):
        return "the numbers are too large to work with."
    return ""


class _Spread(NamedTuple):
    """An outcome in an arm: how many records, its mean, and as roots of mean squares its size and its own spread."""

    n: int
    mean: float
    size: float
    own: float

    @classmethod
    def of(cls, arm: ArmTally, outcome: int) -> _Spread:
        """Read from the raw factor: in R'R = Σ w z z' the first row holds the means, the others what varies.

        Scaled, so that no square is lost.
        """
        R = arm.raw_factor()
        column = R[:, arm.shape.regressors + outcome] / R[0, 0]
        largest = float(np.abs(column).max()) or 1.0
        size, own = (largest * float(np.linalg.norm(part / largest)) for part in (column, column[1:]))
        return cls(arm.n, float(column[0]), size, own)


def _carriers(arm: ArmTally, outcome: int) -> float:
    """How many records carry an outcome, at the least: |Σv| stands for Σ|v|, which moments do not hold."""
    if not arm.n:
        return 0.0
    spread = _Spread.of(arm, outcome)
    # Half of two arms that are alike: `evidence` has the rule for 0/1 outcomes.
    n, total, squares = (np.full(2, each) for each in (arm.n, arm.n * spread.mean, arm.n * spread.size**2))
    return float(evidence(n, total, np.abs(total), squares))


def _watched(question: Question, kind: str, levels: Levels) -> Watched:
    """What the any-time interval is read from: by units where the error is clustered, else by records."""
    arms = [question.arms[0], question.arms[question.arm]]
    spreads = [_Spread.of(arm, question.outcome) for arm in arms]
    largest = max(1.0, *(each.size for each in spreads))  # nothing that is read depends on the scale
    n = np.array([float(arm.n) for arm in arms])
    mean, square, variance = (
        np.array(each) for each in zip(*(_scaled(each, largest) for each in spreads), strict=True)
    )
    total, squares = n * mean, n * square
    found = float(evidence(n, total, np.abs(total), squares))
    watched = Watched(levels, found, np.array([float(sum(arm.n for arm in question.arms))]))
    if is_clustered(kind):  # of all arms, and of the smaller of those compared, whose scores are in the error
        least = min(_units(arm).scored for arm in arms)
        if least < LEAST_GROUPS_ANYTIME:
            why = f"an any-time interval needs {LEAST_GROUPS_ANYTIME} units in each arm; an arm has {least}."
            return Watched(why=why)
        units = float(sum(_units(arm).clusters for arm in question.arms))
        watched = watched._replace(n=np.array([units]), by_unit=True)
    if why := waiting(found):
        exact = np.all(np.abs(total - squares) <= _BINARY * squares)
        return Watched(why=why + _LOWER_BOUND if not exact and n.min() >= ENOUGH else why)
    # The pooled variance of the difference of means over the arm-wise one.
    plain = Levels(mean, np.diag(variance / n), np.zeros((2, 2)), n)
    by_arm = float(difference_of(plain, 1).variance)
    inflation = math.sqrt(max(float(anytime_variance(plain, 1)) / by_arm, 1.0)) if by_arm else 1.0
    return watched._replace(inflation=inflation)


def _scaled(spread: _Spread, largest: float) -> tuple[float, float, float]:
    """The mean, the mean square and the variance of an outcome in units of its largest size."""
    mean, size, own = (each / largest for each in (spread.mean, spread.size, spread.own))
    return mean, size**2, own**2


def _units(arm: ArmTally) -> ClusterScores:
    return cast(ClusterScores, arm.tallies[UNITS])
