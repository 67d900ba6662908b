"""From sums by group, or the moments that they will come from, to effects.

An estimator gives the arms' levels, a kind of error their covariance; `inference.levels` turns both into effects.
While a trial is rich, ``adjusted`` is the pooled regression on all of its records; once it is lean, the difference of
means of y − λ(y − ỹ).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foldaway.effects.analysis import CARRIED, CONSTANT, EXPLAINED, OUTCOME_TOO_SMALL
from foldaway.effects.checks import Checks, assembled, left_out_notes
from foldaway.effects.effect import Effect, row_of
from foldaway.effects.effects import Effects
from foldaway.effects.headline import comparisons
from foldaway.effects.released import coarse, drowned, noisier, release_notes, widening
from foldaway.errors import EstimateError, Unreleased
from foldaway.inference.adjusting import fit_starts
from foldaway.inference.anytime import UNKNOWN_EVIDENCE, Anytime, anytime_effect, carriers_of, evidence_of
from foldaway.inference.claim import claim_of
from foldaway.inference.differing import JointTest, arms_differ
from foldaway.inference.group_regression import left_out
from foldaway.inference.levels import (
    ONE_CARRIES,
    ROUNDING,
    TOO_SMALL,
    ArmEffect,
    Levels,
    effect_of,
    over,
    share_effect_of,
)
from foldaway.inference.loss import Loss, loss_of
from foldaway.inference.reading import Source, levels_of
from foldaway.inference.reading.compliers import complier_effect
from foldaway.inference.rounding import round_count, rounded_levels, two_digits
from foldaway.inference.sample_ratio import SampleRatio, sample_ratio, sample_ratio_of_groups, sample_ratio_with_noise
from foldaway.inference.strata import sample_ratio_of_strata, sample_ratio_of_weights
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan
from foldaway.plan.analysis import errors_of, estimators_of
from foldaway.plan.vocabulary import ESTIMATORS, JACKKNIFE
from foldaway.records.faults import Faults
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.grouped import Grouped, units_of
from foldaway.tallies.release import cell_of
from foldaway.tallies.sums import Sums

# Next to the spread of all arms together, what products in one frame leave of an arm's own if it has none.
_IN_ONE_FRAME = 1e-6

# An estimator and a kind of error.
By = tuple[str, str]


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
            "the effects of this trial are published once, with noise, as its plan says (`release`). So far there are "
            f"more than {coarse(sum(tallies.counts)):,} records. To publish them, use trial.release(), foldaway "
            "release STATE or, on a server, foldaway trial close."
        )
    rounded = rounded and not tallies.released  # noise hides more than rounding would
    reading = Reading.of(tallies, rounded)
    ratio = _sample_ratio(plan, tallies) if units is None else sample_ratio(units, plan.arms, "units")
    rows = [row for outcome in plan.outcomes for row in rows_of(reading, outcome)]
    if plan.release is not None:
        notes = [*notes, *release_notes(plan, rows)]
    if tallies.moments is not None and not rounded and not reading.why:
        notes = [*notes, *left_out_notes(plan, _left_out(tallies.moments))]
    counts = dict(zip(plan.arms, tallies.counts, strict=True))
    checks = Checks.of(plan, counts, ratio, faults, [] if tallies.released else list(_losses(tallies, reading.plain)))
    effects = assembled(plan, rows, checks.told(plan) if rounded else checks, notes)
    return dataclasses.replace(effects, joint=_joint(effects, reading))


def _left_out(moments: CompleteCases) -> list[int]:
    """The columns of covariates that no regression has a use for."""
    found = [set(left_out(part)) for part in moments.parts if part.n]
    return sorted(set.intersection(*found)) if found else []


def _joint(effects: Effects, reading: Reading) -> dict[str, JointTest]:
    """By outcome, whether any of several arms differs from the control, by the estimator and error that lead."""
    plan, tests = reading.plan, {}
    leads: dict[str, list[Effect]] = {}
    for each in comparisons(effects) if len(plan.arms) > 2 else ():
        leads.setdefault(each.outcome, []).append(each.lead)
    for outcome in plan.outcomes:
        lead = leads.get(outcome.name, [])
        if not lead or not all(row.reliable for row in lead):
            continue
        by = lead[0].estimator, lead[0].se_kind
        # From the same rounded numbers as the rows, if they are: exact ones could be solved for.
        levels = _levels(reading, outcome)[by] if reading.rounded else reading.levels(*by, outcome, recentred=False)
        if not isinstance(levels, str) and (test := arms_differ(levels)) is not None:
            tests[outcome.name] = test
    return tests


def _losses(tallies: Grouped, sums: Sums) -> Iterator[Loss]:
    """What each outcome that records may lack has lost."""
    plan, strata, of = tallies.plan, tallies.strata, None
    for outcome in plan.outcomes:
        if plan.lackable.intersection(outcome.columns):
            place, *_ = plan.places(outcome)
            if strata is not None:
                by_arm = (each.reshape(-1, len(plan.arms)).T for each in (strata.counts(place), strata.records))
                present, everyone = by_arm
                of = everyone - present, everyone
            elif plan.strata is not None:  # weighted by 1/π, the arms hold strata in the same proportions
                of = np.maximum(sums.all_weights - sums.weights(place), 0), sums.all_weights
            yield loss_of(outcome.name, list(plan.arms), sums.records - sums.counts(place), sums.records, of)


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
        why = tallies.why if tallies.moments is None else fit_starts(tallies.moments).why
        again = noisier(tallies.plan, tallies.plain()) if tallies.released else ()
        more = [cls(tallies, sums, why) for sums in again]
        return cls(tallies, tallies.plain(), why, rounded, more)

    @property
    def plan(self) -> Plan:
        """The trial's plan."""
        return self.tallies.plan

    @property
    def first_order(self) -> bool:
        """Whether nothing of second order is known of records: the sums are those of devices, or of a release."""
        return self.plan.federated is not None or self.tallies.released

    def anytime(self, by: By, outcome: Outcome, arm: int, shown: Levels) -> Anytime:
        """The interval at any time, beside the levels that are shown."""
        if self.tallies.released:
            return Anytime(why="a release is published once, so there is only one look at it.")
        if self.first_order:
            return Anytime(why=UNKNOWN_EVIDENCE)
        if ESTIMATORS[by[0]].of_effects:
            return Anytime(why="there is no any-time interval for a ratio of two effects.")
        if outcome.LEVEL not in ("mean", "share"):
            return Anytime(why=f"there is no any-time interval for {outcome.LEVEL}s, only for means.")
        plan = self.plan
        evidence = float(evidence_of(self.plain, plan.places(outcome)[0], np.array([0, arm])))
        # What levels have in common would count as theirs where the arms' variances are pooled.
        levels = self.levels(*by, outcome, recentred=False)
        if self.rounded:  # the difference of levels is the same whether these are recentred or not
            levels = self.rounded_levels({by: levels}, outcome, by[0])[by]._replace(value=shown.value)
        return anytime_effect(levels, arm, evidence, plan.confidence, plan.anytime_n, claim_of(plan, outcome))

    def counts(self, outcome: Outcome) -> list[int]:
        """By arm, the number of records that have the outcome."""
        if self.plain.present is None:
            return self.tallies.counts
        return [int(n) for n in self.plain.counts(self.plan.places(outcome)[0]).sum(axis=1)]

    def present(self, outcome: Outcome) -> Floats:
        """By arm and group, the number of records that have the outcome."""
        fewest: Floats = np.min([self.plain.counts(place) for place in self.plan.places(outcome)], axis=0)
        return fewest

    def too_few(self, outcome: Outcome, arm: int) -> str:
        """Why others are not told of an outcome that records may lack; empty if enough units have it."""
        plan = self.plan
        if not self.rounded or not plan.lackable.intersection(outcome.columns):
            return ""
        units, least = units_of(plan, self.present(outcome)), plan.privacy.smallest_cell
        return f"fewer than {least} units of an arm have this outcome." if min(units[0], units[arm]) < least else ""

    def rounded_levels(self, kinds: Mapping[By, Levels], outcome: Outcome, estimator: str) -> dict[By, Levels]:
        """An estimator's levels as they are told: the coarser, the fewer carry the outcome."""
        plan = self.plan
        if outcome.bins is not None:  # a quantile is told where enough lie beyond it: no few carry it
            return rounded_levels(kinds, np.full(len(plan.arms), np.inf))
        fewest: Floats = np.min([self._carriers(place) for place in plan.places(outcome)], axis=0)
        if not ESTIMATORS[estimator].of_effects:
            return rounded_levels(kinds, fewest)
        told = rounded_levels(kinds, np.concatenate([fewest, self._carriers(plan.receipt(outcome))]))
        # Where nobody of an arm, or everybody, received the treatment, that is the design and nobody's secret.
        arms = np.arange(2 * len(fewest)) >= len(fewest)
        return {
            kind: levels._replace(value=np.where(arms & np.isnan(levels.value), kinds[kind].value, levels.value))
            for kind, levels in told.items()
        }

    def _carriers(self, value: int) -> Floats:
        """Those of a value; of devices' sums, whose squares are unknown, how many groups carry it."""
        if self.first_order:
            totals = self.plain.totals(value)
            return np.nan_to_num(over(np.abs(totals).sum(axis=1) ** 2, (totals**2).sum(axis=1)))
        return carriers_of(self.plain, value)

    def without_rounding(self, levels: Levels, outcome: Outcome, estimator: str) -> Levels:
        """The levels, without what rounding gives to arms that have no spread: an error, and a level that is not 0."""
        plan, place = self.plan, self._place(outcome, estimator)
        places = [] if place is None else [place]
        if ESTIMATORS[estimator].of_effects and not plan.covariates:  # adjusted, it has a spread that is not its own
            places = [*plan.places(outcome), plan.receipt(outcome)]
        if not places:
            return levels
        spread = np.sqrt(np.nan_to_num(over(self.plain.square[:, places], self.plain.mass[:, places])))
        rounding = np.repeat([self._rounding(each) for each in places], len(plan.arms))
        flat = spread.T.reshape(-1) <= rounding
        if not flat.any() or (ESTIMATORS[estimator].adjusts and not flat.all()):
            return levels
        value = np.where(flat & (np.abs(levels.value) <= rounding), 0.0, levels.value)
        return levels._replace(value=value, covariance=np.where(flat | flat[:, None], 0.0, levels.covariance))

    def _place(self, outcome: Outcome, estimator: str) -> int | None:
        """Which sums levels are means of, where they are, and more is known of records than their sums."""
        of_means = outcome.KIND in ("mean", "share") and not ESTIMATORS[estimator].of_effects
        return self.plan.places(outcome)[0] if of_means and not self.first_order else None

    def _size(self, place: int) -> float:
        """The mean size of an outcome, of the arm where it is largest."""
        weight = self.plain.weights(place).sum(axis=1)
        return float(np.nan_to_num(over(self.plain.absolute[:, place], weight)).max())

    def _rounding(self, place: int) -> float:
        """The spread that rounding gives to an arm that has none.

        Products of all arms are in one frame while the trial is rich, so it is a share of the spread over all.
        """
        if self.tallies.moments is None:
            return ROUNDING * self._size(place)
        mass, first = self.plain.mass[:, place], self.plain.first[:, place]
        means = np.nan_to_num(over(first, mass)) - first.sum() / max(mass.sum(), 1e-300)
        squares = self.plain.square[:, place].sum() + np.sum(mass * means**2)
        return max(ROUNDING * self._size(place), _IN_ONE_FRAME * math.sqrt(squares / max(mass.sum(), 1e-300)))

    def is_rounding(self, outcome: Outcome, estimator: str, std_error: float | None) -> bool:
        """Whether an error is what products in one frame leave of none."""
        place = self._place(outcome, estimator)
        if place is None or self.tallies.moments is None:
            return False
        return (std_error or 0.0) <= self._rounding(place) / math.sqrt(max(sum(self.tallies.counts), 1))

    def no_error(self, outcome: Outcome, arm: int, estimator: str) -> str:
        """Why no comparison of an arm has an error; empty if it may have one."""
        if (place := self._place(outcome, estimator)) is None:
            return ""
        if 0 < self._size(place) < TOO_SMALL:
            return OUTCOME_TOO_SMALL
        weight, n = self.plain.weights(place).sum(axis=1), self.plain.counts(place).sum(axis=1)
        one = (n > 1) & (weight**2 < ONE_CARRIES * self.plain.mass[:, place])
        involved = range(len(one)) if ESTIMATORS[estimator].adjusts else (0, arm)  # coefficients are those of all arms
        return CARRIED if self.plain.shape.weighted and one[list(involved)].any() else ""

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
                histogram=None if (bins := outcome.bins) is None else tallies.histograms[tallies.plan.bins.index(bins)],
            )
        )


def rows_of(reading: Reading, outcome: Outcome) -> list[Effect]:
    """The rows of one outcome."""
    found = _levels(reading, outcome)
    return [
        _row(reading, outcome, arm, by, levels)
        for arm in range(1, len(reading.plan.arms))
        for by, levels in found.items()
    ]


def _levels(reading: Reading, outcome: Outcome) -> dict[By, Levels | str]:
    """By estimator and kind of error, the arms' levels as rows are read from them, or why there are none."""
    plan = reading.plan
    names = estimators_of(plan, outcome)
    levels: dict[By, Levels] = {}
    found: dict[By, Levels | str] = {(name, kind): "" for name in names for kind in errors_of(plan, name)}
    for each in found:
        if not sum(reading.tallies.counts):
            found[each] = "there are no records yet."
        elif ESTIMATORS[each[0]].adjusts and reading.why:
            found[each] = reading.why
        else:
            try:
                levels[each] = reading.without_rounding(reading.levels(*each, outcome), outcome, each[0])
            except EstimateError as reason:
                found[each] = str(reason)
    for name in names if reading.rounded else ():
        levels |= reading.rounded_levels({each: levels[each] for each in levels if each[0] == name}, outcome, name)
    return found | levels


def _row(reading: Reading, outcome: Outcome, arm: int, by: By, levels: Levels | str) -> Effect:
    """A row, from levels or from the reason why there are none."""
    plan, estimator = reading.plan, by[0]
    counts = [round_count(n) if reading.rounded else n for n in reading.counts(outcome)]
    levels = reading.too_few(outcome, arm) or levels
    if isinstance(levels, str):
        point, first_stage = ArmEffect(reliable=False, why=levels), None
    else:
        compared = share_effect_of if outcome.LEVEL == "share" else effect_of
        compared = complier_effect if ESTIMATORS[estimator].of_effects else compared
        point = compared(levels, arm, plan.confidence, claim_of(plan, outcome))
        first_stage = point.first_stage
        if why := drowned(plan, [counts[0], counts[arm]]):
            point = ArmEffect(reliable=False, why=why)
        elif why := reading.no_error(outcome, arm, estimator):
            point = ArmEffect(point.estimate, point.control_level, reliable=False, why=why)
    untold = reading.rounded and not math.isfinite(point.estimate or 0.0)  # an arm without spread has no steps
    if point.reliable and (untold or not (point.std_error and math.isfinite(point.std_error))):
        point = ArmEffect(point.estimate, point.control_level, reliable=False, why=CONSTANT, relative=point.relative)
    elif point.reliable and reading.is_rounding(outcome, estimator, point.std_error):
        point = ArmEffect(point.estimate, point.control_level, reliable=False, why=EXPLAINED)
    if reading.rounded and not point.reliable:  # without an error there is nothing to round to
        point = ArmEffect(reliable=False, why=point.why)
    anytime = Anytime(why=point.why)
    if point.reliable and not isinstance(levels, str):
        anytime = reading.anytime(by, outcome, arm, levels)
    more = _spending(reading, outcome, arm, by, point)
    more["first_stage"] = float(two_digits(first_stage)) if first_stage and reading.rounded else first_stage
    return row_of(plan, outcome, arm, by, counts, anytime, point, **more)


def _spending(reading: Reading, outcome: Outcome, arm: int, by: By, point: ArmEffect) -> dict[str, Any]:
    """What a row of a release says about it; nothing in any other row."""
    plan = reading.plan
    if plan.release is None:
        return {}
    told: dict[str, Any] = {"epsilon": plan.release.epsilon, "delta": plan.release.delta, "protects": plan.protects}
    if point.std_error and point.df:
        again = [each.levels(*by, outcome).value for each in reading.once_more]
        spread = float(np.var([value[arm] - value[0] for value in again]))
        told["widening"] = widening(plan, spread / point.std_error**2, point.df)
    return told


def _sample_ratio(plan: Plan, tallies: Grouped) -> SampleRatio:
    if plan.strata is not None:
        if tallies.strata is not None:
            return sample_ratio_of_strata(plan, tallies.strata.records.reshape(-1, len(plan.arms)))
        return sample_ratio_of_weights(plan, tallies.plain().all_weights, tallies.records)
    # Records that were randomised one by one are to be counted, whatever clusters tie them together.
    if plan.grouped and (plan.release is not None or not plan.within_clusters):
        return sample_ratio_of_groups(tallies.records, plan.arms)
    counts = dict(zip(plan.arms, tallies.counts, strict=True))
    if plan.release is not None:
        return sample_ratio_with_noise(counts, plan.arms, float(cell_of(plan).scale[0]) ** 2)
    return sample_ratio(counts, plan.arms, "records")
