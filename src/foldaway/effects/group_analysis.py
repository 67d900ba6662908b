"""From sums by group, or the moments that they will come from, to effects.

An estimator gives the arms' levels, a kind of error their covariance; `inference.levels` turns both into effects.
While a trial is rich, ``adjusted`` is the pooled regression on all of its records; once it is lean, the difference of
means of y − λ(y − ỹ).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foldaway.effects.analysis import Checks, assembled
from foldaway.effects.effect import Effect, sentence
from foldaway.effects.effects import Effects
from foldaway.effects.released import coarse, drowned, noisier, release_notes, widening
from foldaway.errors import EstimateError, Unreleased
from foldaway.inference.adjusting import fit_start
from foldaway.inference.anytime import UNKNOWN_EVIDENCE, Anytime, anytime_effect, carriers_of, evidence_of
from foldaway.inference.levels import ArmEffect, Levels, effect_of, over
from foldaway.inference.reading import Source, levels_of
from foldaway.inference.rounding import round_count, rounded_levels
from foldaway.inference.sample_ratio import (
    SampleRatio,
    sample_ratio,
    sample_ratio_of_groups,
    sample_ratio_with_noise,
)
from foldaway.inference.strata import sample_ratio_of_strata
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan
from foldaway.plan.analysis import errors_of, estimators_of
from foldaway.plan.vocabulary import ESTIMATORS, JACKKNIFE
from foldaway.records.faults import Faults
from foldaway.tallies.grouped import Grouped
from foldaway.tallies.release import cell_of
from foldaway.tallies.sums import Sums


def effects_of_groups(
    plan: Plan,
    tallies: Grouped,
    faults: Faults,
    *,
    rounded: bool = False,
    units: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> Effects:
    """Every effect that the tallies hold, and the checks.

    Args:
        plan: The plan.
        tallies: What is held.
        faults: Faulty records left out.
        rounded: Whether they are told to others: see `inference.rounding`.
        units: How many units there are, by arm, where they are counted.
        notes: What else there is to say about the records.

    Raises:
        Unreleased: The plan has a `release`, and these are the exact tallies.
    """
    if plan.release is not None and not tallies.released:
        raise Unreleased(
            "effects of this trial are told once, with noise, as its plan says (`release`). So far there are more than "
            f"{coarse(sum(tallies.counts)):,} records. The effects come with trial.release(), foldaway release STATE "
            "or, on a server, foldaway trial close."
        )
    rounded = rounded and not tallies.released  # noise hides more than rounding would
    reading = Reading.of(tallies, rounded)
    ratio = _sample_ratio(plan, tallies) if units is None else sample_ratio(units, plan.arms, "units")
    rows = [row for outcome in plan.outcomes for row in rows_of(plan, reading, outcome)]
    if plan.release is not None:
        notes = [*notes, *release_notes(plan, rows)]
    checks = Checks(dict(zip(plan.arms, tallies.counts, strict=True)), ratio, faults)
    return assembled(plan, rows, checks.told(plan) if rounded else checks, notes)


class Reading(NamedTuple):
    """What effects are read from.

    Attributes:
        tallies: What the trial holds.
        plain: Sums of the outcomes.
        why: Why outcomes are not adjusted; empty if they are.
        rounded: Whether effects are told to others.
        once_more: Of a release, the same with as much noise once more, again and again: how much of the error is noise.
    """

    tallies: Grouped
    plain: Sums
    why: str
    rounded: bool = False
    once_more: Sequence[Reading] = ()

    @classmethod
    def of(cls, tallies: Grouped, rounded: bool = False) -> Reading:
        """With moments in their own frame, and their sums."""
        why = tallies.why if tallies.moments is None else fit_start(tallies.moments).why
        again = noisier(tallies.plan, tallies.plain()) if tallies.released else ()
        more = [cls(tallies, sums, why) for sums in again]
        return cls(tallies, tallies.plain(), why, rounded, more)

    @property
    def first_order(self) -> bool:
        """Whether nothing of second order is known of records: the sums are those of devices, or of a release."""
        return self.tallies.plan.federated is not None or self.tallies.released

    def anytime(self, estimator: str, kind: str, outcome: Outcome, arm: int, shown: Levels) -> Anytime:
        """The interval at any time, beside the levels that are shown."""
        if self.tallies.released:
            return Anytime(None, None, None, "a release is told once, so there is one look at it alone.")
        if self.first_order:
            return Anytime(None, None, None, UNKNOWN_EVIDENCE)
        if outcome.LEVEL not in ("mean", "share"):
            return Anytime(None, None, None, f"an any-time interval is for means, and not for {outcome.LEVEL}s.")
        plan = self.tallies.plan
        evidence = evidence_of(self.plain, plan.places(outcome)[0], arm)
        # What levels have in common would count as theirs where the arms' variances are pooled.
        levels = self.levels(estimator, kind, outcome, recentred=False)
        if self.rounded:  # the difference of levels is the same whether these are recentred or not
            levels = rounded_levels({kind: levels}, self.carriers(outcome))[kind]._replace(value=shown.value)
        return anytime_effect(levels, arm, evidence, plan.confidence, plan.anytime_n)

    def carriers(self, outcome: Outcome) -> Floats:
        """By arm, how many people carry an outcome: of several values, the one that fewest carry."""
        fewest: Floats = np.min([self._carriers(place) for place in self.tallies.plan.places(outcome)], axis=0)
        return fewest

    def _carriers(self, value: int) -> Floats:
        """Those of a value; of devices' sums, whose squares are unknown, how many groups carry it."""
        if self.first_order:
            totals = self.plain.totals(value)
            return np.nan_to_num(over(np.abs(totals).sum(axis=1) ** 2, (totals**2).sum(axis=1)))
        return carriers_of(self.plain, value)

    def levels(self, estimator: str, kind: str, outcome: Outcome, *, recentred: bool = True) -> Levels:
        """The arms' levels by an estimator, with an error of this kind; recentred for all but any-time intervals."""
        tallies = self.tallies
        return levels_of(
            Source(
                tallies.plan,
                outcome,
                self.plain,
                tallies.moments,
                estimator,
                by_group=kind == JACKKNIFE,
                first_order=self.first_order,
                recentred=recentred,
                strata=tallies.strata,
            )
        )


def rows_of(plan: Plan, reading: Reading, outcome: Outcome) -> list[Effect]:
    """The rows of one outcome."""
    names = estimators_of(plan, outcome)
    kinds = [(name, kind) for name in names for kind in errors_of(plan, name)]
    levels: dict[tuple[str, str], Levels] = {}
    reasons: dict[tuple[str, str], str] = {}
    for each in kinds:
        if not sum(reading.tallies.counts):
            reasons[each] = "there are no records yet."
        elif ESTIMATORS[each[0]].adjusts and reading.why:
            reasons[each] = reading.why
        else:
            try:
                levels[each] = reading.levels(*each, outcome)
            except EstimateError as reason:
                reasons[each] = str(reason)
    if reading.rounded:
        of_one = [{each: levels[each] for each in levels if each[0] == name} for name in names]
        carriers = reading.carriers(outcome)
        levels = {each: told for one in of_one for each, told in rounded_levels(one, carriers).items()}
    return [
        _row(plan, reading, outcome, arm, name, kind, levels.get((name, kind), reasons.get((name, kind), "")))
        for arm in range(1, len(plan.arms))
        for name, kind in kinds
    ]


def _row(
    plan: Plan, reading: Reading, outcome: Outcome, arm: int, estimator: str, kind: str, levels: Levels | str
) -> Effect:
    """A row, from levels or from the reason why there are none."""
    counts = [round_count(n) if reading.rounded else n for n in reading.tallies.counts]
    anytime = None
    if isinstance(levels, str):
        point = ArmEffect(None, None, reliable=False, why=levels)
    else:
        point = effect_of(levels, arm, plan.confidence)
        if why := drowned(plan, [counts[0], counts[arm]]):
            point = ArmEffect(None, None, reliable=False, why=why)
        anytime = reading.anytime(estimator, kind, outcome, arm, levels)
    untold = reading.rounded and not math.isfinite(point.estimate or 0.0)  # an arm without spread has no steps
    if point.reliable and (untold or not (point.std_error and math.isfinite(point.std_error))):
        why = "no record of an arm differs from another in this outcome, so there is no error to give."
        point = ArmEffect(point.estimate, point.base, reliable=False, why=why, relative=point.relative)
    if reading.rounded and not point.reliable:  # without an error there is nothing to round to
        point = ArmEffect(None, None, reliable=False, why=point.why)
    at_any_time = anytime if point.reliable else None
    return Effect(
        outcome=outcome.name,
        arm=list(plan.arms)[arm],
        control=plan.control,
        estimator=estimator,
        se_kind=kind,
        n=sum(counts),
        n_arm=counts[arm],
        n_control=counts[0],
        estimate=point.estimate,
        std_error=point.std_error,
        statistic=point.estimate / point.std_error if point.estimate is not None and point.std_error else None,
        df=point.df,
        p_value=point.p_value,
        ci_lower=point.ci_lower,
        ci_upper=point.ci_upper,
        control_level=point.base,
        relative=point.relative,
        relative_std_error=point.relative_std_error,
        relative_ci_lower=point.relative_ci_lower,
        relative_ci_upper=point.relative_ci_upper,
        anytime_ci_lower=None if at_any_time is None else at_any_time.lower,
        anytime_ci_upper=None if at_any_time is None else at_any_time.upper,
        anytime_p_value=None if at_any_time is None else at_any_time.p_value,
        reliable=point.reliable,
        why=_sentence(point.why),
        relative_why=_sentence(point.relative_why or point.why),
        anytime_why=_sentence(point.why if at_any_time is None else at_any_time.why),
        **_spending(plan, reading, outcome, arm, estimator, kind, point),
    )


def _spending(
    plan: Plan, reading: Reading, outcome: Outcome, arm: int, estimator: str, kind: str, point: ArmEffect
) -> dict[str, Any]:
    """What a row of a release says about it; nothing in any other row."""
    if plan.release is None:
        return {}
    told: dict[str, Any] = {"epsilon": plan.release.epsilon, "delta": plan.release.delta, "protects": plan.protects}
    if point.std_error and point.df:
        again = [each.levels(estimator, kind, outcome).value for each in reading.once_more]
        spread = float(np.var([value[arm] - value[0] for value in again]))
        told["widening"] = widening(plan, spread / point.std_error**2, point.df)
    return told


def _sentence(reason: str) -> str | None:
    return sentence(reason) if reason else None


def _sample_ratio(plan: Plan, tallies: Grouped) -> SampleRatio:
    if plan.strata is not None:
        if tallies.strata is not None:
            return sample_ratio_of_strata(plan, tallies.strata.records.reshape(-1, len(plan.arms)))
        # Records weigh one over their probability, so that all arms are expected to weigh alike.
        return sample_ratio_of_groups(tallies.plain().weights(0), dict.fromkeys(plan.arms, 1 / len(plan.arms)))
    # Records that were randomised one by one are to be counted, whatever clusters tie them together.
    if plan.grouped and (plan.release is not None or not plan.within_clusters):
        return sample_ratio_of_groups(tallies.records, plan.arms)
    counts = dict(zip(plan.arms, tallies.counts, strict=True))
    if plan.release is not None:
        return sample_ratio_with_noise(counts, plan.arms, float(cell_of(plan).scale[0]) ** 2)
    return sample_ratio(counts, plan.arms, "records")
