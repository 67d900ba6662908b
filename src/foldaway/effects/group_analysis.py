"""From sums by group, or the moments that they will come from, to effects.

An estimator gives the arms' levels, a kind of error their covariance; `inference.levels` turns both into effects.
While a trial is rich, ``adjusted`` is the pooled regression on all of its records; once it is lean, the difference of
means of y − λ(y − ỹ).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.effects.analysis import CARRIED, CONSTANT, EXPLAINED, OUTCOME_TOO_SMALL, Checks, assembled, left_out_notes
from foldaway.effects.effect import Effect, sentence
from foldaway.effects.effects import Effects
from foldaway.effects.released import coarse, drowned, noisier, release_notes, widening
from foldaway.errors import Unreleased
from foldaway.inference.adjusting import fit_start
from foldaway.inference.anytime import UNKNOWN_EVIDENCE, Anytime, anytime_effect, carriers_of, evidence_of
from foldaway.inference.group_rate import jackknife_adjusted
from foldaway.inference.group_regression import jackknife_regression, left_out, regression_welch
from foldaway.inference.jackknife import adjusted_mean, cells_of, jackknife, mean, total_per_unit
from foldaway.inference.levels import ONE_CARRIES, ROUNDING, TOO_SMALL, ArmEffect, Levels, effect_of, over
from foldaway.inference.rounding import round_count, rounded_levels
from foldaway.inference.sample_ratio import (
    SampleRatio,
    sample_ratio,
    sample_ratio_of_groups,
    sample_ratio_with_noise,
)
from foldaway.inference.welch import noisy_shares, prediction_rate, spread_of, welch, welch_total
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.analysis import errors_of, estimators_of
from foldaway.plan.vocabulary import ESTIMATORS, JACKKNIFE, TOTAL
from foldaway.records.faults import Faults
from foldaway.tallies.grouped import Grouped
from foldaway.tallies.release import cell_of
from foldaway.tallies.sums import Sums

# Next to the spread of all arms together, what products in one frame leave of an arm's own if it has none.
_IN_ONE_FRAME = 1e-6


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
    rows = [row for outcome in range(len(plan.outcomes)) for row in _rows(plan, reading, outcome)]
    if plan.release is not None:
        notes = [*notes, *release_notes(plan, rows)]
    if tallies.moments is not None and not rounded and not reading.why:
        notes = [*notes, *left_out_notes(plan, left_out(tallies.moments))]
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

    def anytime(self, estimator: str, kind: str, outcome: int, arm: int, shown: Levels) -> Anytime:
        """The interval at any time, beside the levels that are shown."""
        if self.tallies.released:
            return Anytime(None, None, None, "a release is told once, so there is one look at it alone.")
        if self.first_order:
            return Anytime(None, None, None, UNKNOWN_EVIDENCE)
        if self.is_total(outcome):
            return Anytime(None, None, None, "an any-time interval is for means, and not for totals.")
        plan, evidence = self.tallies.plan, evidence_of(self.plain, outcome, arm)
        # What levels have in common would count as theirs where the arms' variances are pooled.
        levels = self.levels(estimator, kind, outcome, recentred=False)
        if self.rounded:  # the difference of levels is the same whether these are recentred or not
            levels = rounded_levels({kind: levels}, self.carriers(outcome))[kind]._replace(value=shown.value)
        return anytime_effect(levels, arm, evidence, plan.confidence, plan.anytime_n)

    def carriers(self, outcome: int) -> Floats:
        """By arm, how many people carry an outcome; of devices' sums, whose squares are unknown, how many groups do."""
        if self.first_order:
            totals = self.plain.totals(outcome)
            return np.nan_to_num(over(np.abs(totals).sum(axis=1) ** 2, (totals**2).sum(axis=1)))
        return carriers_of(self.plain, outcome)

    def flat(self, outcome: int) -> NDArray[np.bool_]:
        """By arm, whether all records have one value of the outcome, as far as sums can tell."""
        if self.first_order:
            return np.zeros(len(self.plain.mass), dtype=bool)
        spread = np.sqrt(np.nan_to_num(over(self.plain.square[:, outcome], self.plain.mass[:, outcome])))
        return spread <= self.rounding(outcome)

    def size(self, outcome: int) -> float:
        """The mean size of the outcome, of the arm where it is largest."""
        weight = self.plain.weights(outcome).sum(axis=1)
        return float(np.nan_to_num(over(self.plain.absolute[:, outcome], weight)).max())

    def rounding(self, outcome: int) -> float:
        """The spread that rounding gives to an arm that has none.

        Products of all arms are in one frame while the trial is rich, so it is a share of the spread over all.
        """
        if self.tallies.moments is None or self.first_order:
            return ROUNDING * self.size(outcome)
        mass, first = self.plain.mass[:, outcome], self.plain.first[:, outcome]
        means = np.nan_to_num(over(first, mass)) - first.sum() / max(mass.sum(), 1e-300)
        squares = self.plain.square[:, outcome].sum() + np.sum(mass * means**2)
        return max(ROUNDING * self.size(outcome), _IN_ONE_FRAME * math.sqrt(squares / max(mass.sum(), 1e-300)))

    def is_rounding(self, outcome: int, std_error: float | None) -> bool:
        """Whether an error is what products in one frame leave of none."""
        n = math.sqrt(max(sum(self.tallies.counts), 1))
        return self.tallies.moments is not None and (std_error or 0.0) <= self.rounding(outcome) / n

    def no_error(self, outcome: int, arm: int, estimator: str) -> str:
        """Why no comparison of an arm has an error; empty if it may have one."""
        if self.first_order:
            return ""
        if 0 < self.size(outcome) < TOO_SMALL:
            return OUTCOME_TOO_SMALL
        weight, n = self.plain.weights(outcome).sum(axis=1), self.plain.counts(outcome).sum(axis=1)
        one = (n > 1) & (weight**2 < ONE_CARRIES * self.plain.mass[:, outcome])
        involved = range(len(one)) if ESTIMATORS[estimator].adjusts else (0, arm)  # coefficients are those of all arms
        return CARRIED if self.plain.shape.weighted and one[list(involved)].any() else ""

    def is_total(self, outcome: int) -> bool:
        """Whether the plan asks for the outcome's total."""
        return self.tallies.plan.outcomes[outcome] in self.tallies.plan.totals

    def levels(self, estimator: str, kind: str, outcome: int, *, recentred: bool = True) -> Levels:
        """The arms' levels by an estimator, with an error of this kind; recentred for all but any-time intervals."""
        by_group, moments = kind == JACKKNIFE, self.tallies.moments
        if self.tallies.plan.by_shares:
            cells, scale = cells_of(self.plain, outcome).total(), cell_of(self.tallies.plan).scale
            return noisy_shares(cells.weight, cells.value, cells.level, (scale[0], scale[1 + outcome]))
        if self.is_total(outcome):
            plan = self.tallies.plan
            shares, units = np.array(list(plan.arms.values())), float(plan.assigned_units or 1)
            if by_group:
                total = partial(total_per_unit, probabilities=shares, units=units)
                return jackknife(total, cells_of(self.plain, outcome))
            return welch_total(spread_of(self.plain, outcome), shares, units)
        if not ESTIMATORS[estimator].adjusts:
            return jackknife(mean, cells_of(self.plain, outcome)) if by_group else welch(spread_of(self.plain, outcome))
        if moments is not None:
            if by_group:
                return jackknife_regression(moments.reframed(), outcome, recentred=recentred)
            return regression_welch(moments.reframed(), outcome)
        if self.first_order:
            return jackknife_adjusted(cells_of(self.plain, outcome))
        rate = prediction_rate(spread_of(self.plain, outcome))
        if by_group:
            return jackknife(partial(adjusted_mean, rate=rate, recentred=recentred), cells_of(self.plain, outcome))
        return welch(spread_of(self.plain, outcome), rate)


def _rows(plan: Plan, reading: Reading, outcome: int) -> Iterator[Effect]:
    """The rows of one outcome."""
    names = [name for name in estimators_of(plan) if (name == TOTAL) == reading.is_total(outcome)]
    kinds = [(name, kind) for name in names for kind in errors_of(plan, name)]
    levels = {
        each: reading.levels(*each, outcome)
        for each in kinds
        if sum(reading.tallies.counts) and not (ESTIMATORS[each[0]].adjusts and reading.why)
    }
    flat, rounding = reading.flat(outcome), reading.rounding(outcome)
    levels = {each: _without_rounding(found, flat, rounding, each[0]) for each, found in levels.items()}
    if reading.rounded:
        of_one = [{each: levels[each] for each in levels if each[0] == name} for name in names]
        carriers = reading.carriers(outcome)
        levels = {each: told for one in of_one for each, told in rounded_levels(one, carriers).items()}
    for arm in range(1, len(plan.arms)):
        for name, kind in kinds:
            yield _row(plan, reading, outcome, arm, name, kind, levels.get((name, kind)))


def _without_rounding(levels: Levels, flat: NDArray[np.bool_], rounding: float, estimator: str) -> Levels:
    """The levels, without what rounding gives to arms that have no spread: an error, and a level that is not zero."""
    if estimator == TOTAL or not flat.any() or (ESTIMATORS[estimator].adjusts and not flat.all()):
        return levels
    value = np.where(flat & (np.abs(levels.value) <= rounding), 0.0, levels.value)
    return levels._replace(value=value, covariance=np.where(flat | flat[:, None], 0.0, levels.covariance))


def _row(
    plan: Plan, reading: Reading, outcome: int, arm: int, estimator: str, kind: str, levels: Levels | None
) -> Effect:
    counts = [round_count(n) if reading.rounded else n for n in reading.tallies.counts]
    point = ArmEffect(None, None, reliable=False, why=reading.why if sum(counts) else "there are no records yet.")
    anytime = None
    if levels is not None:
        point = effect_of(levels, arm, plan.confidence)
        if why := drowned(plan, [counts[0], counts[arm]]):
            point = ArmEffect(None, None, reliable=False, why=why)
        elif why := reading.no_error(outcome, arm, estimator):
            point = ArmEffect(point.estimate, point.base, reliable=False, why=why)
        anytime = reading.anytime(estimator, kind, outcome, arm, levels)
    untold = reading.rounded and not math.isfinite(point.estimate or 0.0)  # an arm without spread has no steps
    if point.reliable and (untold or not (point.std_error and math.isfinite(point.std_error))):
        point = ArmEffect(point.estimate, point.base, reliable=False, why=CONSTANT, relative=point.relative)
    elif point.reliable and reading.is_rounding(outcome, point.std_error):
        point = ArmEffect(point.estimate, point.base, reliable=False, why=EXPLAINED)
    if reading.rounded and not point.reliable:  # without an error there is nothing to round to
        point = ArmEffect(None, None, reliable=False, why=point.why)
    at_any_time = anytime if point.reliable else None
    return Effect(
        outcome=plan.outcomes[outcome],
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
    plan: Plan, reading: Reading, outcome: int, arm: int, estimator: str, kind: str, point: ArmEffect
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
    if plan.grouped:
        return sample_ratio_of_groups(tallies.records, plan.arms)
    counts = dict(zip(plan.arms, tallies.counts, strict=True))
    if plan.release is not None:
        return sample_ratio_with_noise(counts, plan.arms, float(cell_of(plan).scale[0]) ** 2)
    return sample_ratio(counts, plan.arms, "records")
