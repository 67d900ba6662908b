"""What sums by group say, or the moments that they will come from: an outcome's levels, by estimator and kind of error.

While a trial is rich, ``adjusted`` is the regression on all of its records with the slopes that make the variance of
the difference smallest; once it is lean, the difference of means of y − λ(y − ỹ).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from foldaway.effects.checks import Outlying, left_out_notes
from foldaway.effects.found import By, Found
from foldaway.effects.reasons import CARRIED, EXPLAINED, OUTCOME_TOO_SMALL, few_carry
from foldaway.effects.released import drowned, noisier
from foldaway.errors import EstimateError
from foldaway.inference.adjusting import fit_starts
from foldaway.inference.anytime import UNKNOWN_EVIDENCE, Watched, carriers_of, evidence_of
from foldaway.inference.blended import FEW_CARRIERS
from foldaway.inference.group_regression import left_out
from foldaway.inference.jackknife import cells_of
from foldaway.inference.levels import ONE_CARRIES, ROUNDING, TOO_SMALL, Levels, difference_of, over
from foldaway.inference.loss import Loss, loss_of
from foldaway.inference.one_look import Carried
from foldaway.inference.reading import Source, levels_of
from foldaway.inference.reading.survival import events_by
from foldaway.inference.sample_ratio import SampleRatio, sample_ratio, sample_ratio_of_groups, sample_ratio_with_noise
from foldaway.inference.standing_out import standing_out
from foldaway.inference.strata import over_strata, sample_ratio_of_strata, sample_ratio_of_weights
from foldaway.inference.unequal_arms import EVEN
from foldaway.numerics.block import Floats
from foldaway.plan import Outcome, Plan, Survival
from foldaway.plan.reported import errors_of, estimators_of
from foldaway.plan.vocabulary import DIFFERENCE, ERRORS, ESTIMATORS, JACKKNIFE, MEDIAN_OF_MEANS, SUMS
from foldaway.tallies import Grouped
from foldaway.tallies.histogram import Histogram
from foldaway.tallies.release import cell_of
from foldaway.tallies.segment import SegmentTallies, units_of
from foldaway.tallies.sums import Sums

# Next to the spread of all arms together, what products in one frame leave of an arm's own if it has none.
_IN_ONE_FRAME = 1e-6

# Sums of zeros and ones agree with those of their squares but for rounding.
_BINARY = 1e-9


class SumsRead(NamedTuple):
    """Sums, as they are read.

    Attributes:
        tallies: What the trial holds.
        plain: Sums of the outcomes.
        strata: The same by stratum, as they are once the trial is lean; None if the plan has none.
        why: Why outcomes are not adjusted; empty if they are.
        shares: By site, where these are the strata, the arms' probabilities.
        of_group: How many units a group certainly has, if it has any; None if that is for the plan to say.
        units: How many units there are, by arm, where they are counted.
        once_more: Of a release, the same with as much noise once more, again and again: how much of the error is noise.
        exits: By stratum or site, the histograms of exits, the arms side by side; none if the plan has no strata.
    """

    tallies: Grouped
    plain: Sums
    strata: Sums | None
    why: str
    once_more: Sequence[SumsRead] = ()
    shares: Floats | None = None
    of_group: int | None = None
    units: Sequence[int] | None = None
    exits: tuple[Histogram, ...] = ()

    def within_sites(self, sites: SegmentTallies[Grouped] | None) -> SumsRead:
        """The same, with what each site has sent as strata; as they are if there are no sites."""
        if sites is None or self.plan.federated is None:
            return self
        own = self.plan.federated.probabilities
        shares = [[own.get(site, self.plan.arms)[arm] for arm in self.plan.arms] for site in sites.levels]
        read = self._replace(strata=sites.cells.plain(), shares=np.array(shares), exits=sites.cells.histograms)
        if not (self.plan.shares_differ and self.tallies.histograms):
            return read
        weights = np.array(list(self.plan.arms.values())) / read.shares  # as in each arm, so in all sites together
        histograms = tuple(
            replace(each, shape=each.shape._replace(arms=len(self.plan.arms)), counts=over_strata(each.counts, weights))
            for each in sites.cells.histograms
        )
        return read._replace(tallies=replace(self.tallies, histograms=histograms))

    @classmethod
    def of(cls, tallies: Grouped) -> SumsRead:
        """With moments in their own frame, and their sums."""
        cases, strata, why = tallies.fitted, tallies.strata, tallies.why
        if cases is not None:
            start = fit_starts(cases)
            strata, why = None if strata is None else strata.fixed(*start), start.why
        again = noisier(tallies.plan, tallies.plain()) if tallies.released else ()
        more = [cls(tallies, sums, None, why) for sums in again]
        if strata is None:
            return cls(tallies, tallies.plain(), None, why, more)
        return cls(tallies, tallies.plain(), strata.plain(), why, more, exits=strata.histograms)

    @property
    def plan(self) -> Plan:
        """The trial's plan."""
        return self.tallies.plan

    @property
    def first_order(self) -> bool:
        """Whether nothing of second order is known of records: the sums are those of devices, or of a release."""
        return self.plan.federated is not None or self.tallies.released

    @property
    def all_counts(self) -> list[int]:
        """The number of records, by arm."""
        return self.tallies.counts

    def found(self) -> Iterator[Found]:
        """What the sums say, row by row."""
        return chain.from_iterable(map(self.found_of, self.plan.outcomes))

    def found_of(self, outcome: Outcome) -> Iterator[Found]:
        """What the sums say of an outcome, row by row."""
        plan, counts = self.plan, self.counts(outcome)
        levels = {by: self.levels(by, outcome) for by in self.pairs(outcome)}
        watched = {by: self._watched(by, outcome) for by, those in levels.items() if not isinstance(those, str)}
        carriers = {name: self.carriers(outcome, name) for name, _ in watched}
        for arm in range(1, len(plan.arms)):
            few = self.few(outcome, arm)
            for by, those in levels.items():
                found = Found(outcome, arm, by, counts, few=few)
                if isinstance(those, str):
                    yield found._replace(why=those)
                elif why := drowned(plan, [counts[0], counts[arm]]):
                    yield found._replace(why=why)
                else:
                    pair = self._pair(arm, by)
                    own = those.of(pair)
                    yield found._replace(
                        levels=own,
                        no_error=self._no_error(outcome, arm, by[0], own),
                        watched=self._watching(watched[by], outcome, arm),
                        carried=self._carried(by, outcome, arm, own, watched[by]),
                        carriers=carriers[by[0]][pair],
                        noise=self._noise(by, outcome, arm),
                    )

    def pairs(self, outcome: Outcome) -> list[By]:
        """The estimators and kinds of error that are read from sums."""
        plan = self.plan
        names = [name for name in estimators_of(plan, outcome) if SUMS in ESTIMATORS[name].sources]
        return [(name, kind) for name in names for kind in errors_of(plan, name) if ERRORS[kind].source == SUMS]

    def _pair(self, arm: int, by: By) -> list[int]:
        """Where the levels of the control and of an arm stand."""
        arms = len(self.plan.arms)
        return [0, arm, arms, arms + arm] if ESTIMATORS[by[0]].of_effects else [0, arm]

    def levels(self, by: By, outcome: Outcome) -> Levels | str:
        """All arms' levels as rows are read from them, or why there are none."""
        if not sum(self.tallies.counts):
            return "there are no records yet."
        if ESTIMATORS[by[0]].adjusts and self.why:
            return self.why
        try:
            return self._without_rounding(self.exact(by, outcome), outcome, by[0])
        except EstimateError as reason:
            return str(reason)

    def exact(self, by: By, outcome: Outcome, *, recentred: bool = True) -> Levels:
        """The arms' levels by an estimator, with an error of this kind; recentred for all but differences."""
        tallies = self.tallies
        return levels_of(
            Source(
                tallies.plan,
                outcome,
                self.plain,
                tallies.cases,
                by[0],
                by_group=by[1] == JACKKNIFE,
                first_order=self.first_order,
                recentred=recentred,
                strata=self.strata,
                histogram=self.histogram(outcome),
            )
        )

    def histogram(self, outcome: Outcome) -> Histogram | None:
        """The histogram that an outcome is read from, if it is."""
        bins = outcome.binning
        return None if bins is None else self.tallies.histograms[self.plan.bins.index(bins)]

    def exits_by_stratum(self, outcome: Survival) -> tuple[Histogram, int]:
        """The histogram of exits by stratum, the arms side by side, and the number of strata: 1 if there are none."""
        place, arms = self.plan.bins.index(outcome.binning), len(self.plan.arms)
        if not self.exits:
            return self.tallies.histograms[place], 1
        exits = self.exits[place if self.plan.strata is None else self.plan.exits_by_stratum.index(place)]
        return exits, exits.shape.arms // arms

    def _watched(self, by: By, outcome: Outcome) -> Levels | str:
        """All arms' levels that any-time intervals are read from, or why there are none.

        What levels have in common would count as theirs where the arms' variances are pooled: they are not recentred.
        """
        if self.tallies.released:
            return "a release is published once, so there is only one look at it."
        if self.first_order:
            return UNKNOWN_EVIDENCE
        if ESTIMATORS[by[0]].of_effects:
            return "there is no any-time interval for a ratio of two effects."
        if outcome.level not in ("mean", "share"):
            return f"there is no any-time interval for {outcome.level}s, only for means."
        return self.exact(by, outcome, recentred=False)

    def _watching(self, watched: Levels | str, outcome: Outcome, arm: int) -> Watched:
        if isinstance(watched, str):
            return Watched(why=watched)
        evidence = float(evidence_of(self.plain, self.plan.places(outcome)[0], np.array([0, arm])))
        return Watched(watched.of([0, arm]), evidence, watched.n)

    def _carried(self, by: By, outcome: Outcome, arm: int, own: Levels, watched: Levels | str) -> Carried | None:
        """What is known of the records behind two levels, where Student's t is not enough for them.

        It is where the plan's arms are of about equal size and enough records carry the outcome. Of a release, and of
        devices' means, nothing is known.
        """
        if self.tallies.released or outcome.KIND not in ("mean", "share", "ratio") or ESTIMATORS[by[0]].of_effects:
            return None
        if by[0] == MEDIAN_OF_MEANS:  # no share of records, but the middle of such shares
            return None
        places, pair, measured = self.plan.places(outcome), [0, arm], None
        n = self.plain.counts(places[0]).sum(axis=1)[pair]
        if ESTIMATORS[by[0]].adjusts:
            measured = self.exact((DIFFERENCE, by[1]), outcome, recentred=False).of(pair)
        if self.first_order:
            return Carried(own, None, np.ones(2), n, measured)
        arms = np.array(pair)
        evidence = min(float(evidence_of(self.plain, each, arms, either=each == places[0])) for each in places)
        if evidence >= FEW_CARRIERS and self.plan.evenness(arm) >= EVEN:
            return None
        weight, mass = self.plain.weights(places[0]).sum(axis=1)[pair], self.plain.mass[pair, places[0]]
        apart = own if isinstance(watched, str) else watched.of(pair)._replace(value=own.value)
        absolute = self.plain.absolute[pair]
        size = over(absolute[:, places[0]], absolute[:, places[1]] if places[1:] else weight)
        worth = np.where(mass > 0, np.nan_to_num(over(weight**2, mass)), n) if self.plain.shape.weighted else n
        return Carried(apart, evidence, np.nan_to_num(size), worth, measured)

    def _noise(self, by: By, outcome: Outcome, arm: int) -> float:
        """Of a release, the variance of an effect that is noise."""
        again = [each.exact(by, outcome).value for each in self.once_more]
        return float(np.var([value[arm] - value[0] for value in again])) if again else 0.0

    def counts(self, outcome: Outcome) -> list[int]:
        """By arm, the number of records that have the outcome."""
        if self.plain.present is None:
            return self.tallies.counts
        return [int(n) for n in self.plain.counts(self.plan.places(outcome)[0]).sum(axis=1)]

    def present(self, outcome: Outcome) -> Floats:
        """By arm and group, the number of records that have the outcome."""
        fewest: Floats = np.min([self.plain.counts(place) for place in self.plan.places(outcome)], axis=0)
        return fewest

    def few(self, outcome: Outcome, arm: int) -> str:
        """Why others are not told of an outcome: too few have it; too few carry it, or do not. Empty if enough do."""
        plan = self.plan
        if self._carried_by_few(outcome, arm):
            return few_carry(plan)
        if not plan.lackable.intersection(outcome.columns):
            return ""
        units, least = units_of(plan, self.present(outcome), self.of_group), plan.privacy.smallest_cell
        return f"fewer than {least} units of an arm have this outcome." if min(units[0], units[arm]) < least else ""

    def _carried_by_few(self, outcome: Outcome, arm: int) -> bool:
        """Whether, of zeros and ones, an arm has fewer of either than the smallest cell; decided on counts alone."""
        (ones, everyone), (place, *_) = self._carrying(outcome), self.plan.places(outcome)
        if ones is None:
            return False
        records = over(self.plain.counts(place).sum(axis=1), everyone.sum(axis=1))
        for each in (ones, everyone - ones):
            some = each > _BINARY * np.maximum(everyone, 1)
            people = np.where(some, each, 0.0).sum(axis=1) * np.nan_to_num(records)
            people = self._units_among(people, some.sum(axis=1)) if self.plan.grouped else people
            if min(people[0], people[arm]) < self.plan.privacy.smallest_cell * (1 - _BINARY):
                return True
        return False

    def _units_among(self, records: Floats, groups: Floats) -> Floats:
        """How many units so many records by arm, in so many groups, are of at the least.

        One for each group; and where units are counted, all records but those that are not their unit's first.
        """
        fewest = np.minimum(records, groups)
        if self.units is None:
            return fewest
        further: Floats = self.plain.records.sum(axis=1) - np.asarray(self.units)
        return np.maximum(fewest, records - further)

    def _carrying(self, outcome: Outcome) -> tuple[Floats | None, Floats]:
        """By arm and group, the weight of records that carry an outcome, None where all may, and that of all records.

        Those are ones among zeros, and events among exits.
        """
        place, *_ = self.plan.places(outcome)
        if isinstance(outcome, Survival):
            histogram = self.histogram(outcome)
            assert histogram is not None
            return events_by(outcome, histogram), histogram.counts.sum(axis=-1)
        ones, everyone = self.plain.totals(place), self.plain.weights(place)
        if outcome.KIND not in ("mean", "share"):
            return None, everyone
        if outcome.KIND == "mean":
            squares = self.plain.square[:, place] + over(ones.sum(axis=1) ** 2, everyone.sum(axis=1))
            unit = np.abs(np.nan_to_num(squares) - ones.sum(axis=1)) <= _BINARY * np.abs(ones.sum(axis=1))
            if self.first_order or self.plain.shape.weighted or not unit.all() or np.any(ones < 0):
                return None, everyone
        return ones, everyone

    def carriers(self, outcome: Outcome, estimator: str) -> Floats:
        """By level, how many carry it: the fewer, the more coarsely others are told."""
        plan = self.plan
        if outcome.binning is not None:  # a quantile is told where enough lie beyond it: no few carry it
            return np.full(len(plan.arms), np.inf)
        fewest: Floats = np.min([self._carriers(place) for place in plan.places(outcome)], axis=0)
        if not ESTIMATORS[estimator].of_effects:
            return fewest
        return np.concatenate([fewest, self._carriers(plan.receipt(outcome))])

    def _carriers(self, value: int) -> Floats:
        """Those of a value; of devices' sums, whose squares are unknown, how many groups carry it."""
        if self.first_order:
            totals = self.plain.totals(value)
            return np.nan_to_num(over(np.abs(totals).sum(axis=1) ** 2, (totals**2).sum(axis=1)))
        return carriers_of(self.plain, value)

    def _without_rounding(self, levels: Levels, outcome: Outcome, estimator: str) -> Levels:
        """The levels; where an arm has no spread, its error becomes 0, and so does a level that is all rounding."""
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
        nothing = (self.plain.absolute[:, places].T.reshape(-1) == 0) & np.isfinite(levels.value)
        value = np.where(flat & (nothing | (np.abs(levels.value) <= rounding)), 0.0, levels.value)
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
        if not self.tallies.unfixed:
            return ROUNDING * self._size(place)
        mass, first = self.plain.mass[:, place], self.plain.first[:, place]
        means = np.nan_to_num(over(first, mass)) - first.sum() / max(mass.sum(), 1e-300)
        squares = self.plain.square[:, place].sum() + np.sum(mass * means**2)
        return max(ROUNDING * self._size(place), _IN_ONE_FRAME * math.sqrt(squares / max(mass.sum(), 1e-300)))

    def _no_error(self, outcome: Outcome, arm: int, estimator: str, levels: Levels) -> str:
        """Why a comparison of an arm has no error; empty if it may have one."""
        if (place := self._place(outcome, estimator)) is None:
            return ""
        if 0 < self._size(place) < TOO_SMALL:
            return OUTCOME_TOO_SMALL
        weight, n = self.plain.weights(place).sum(axis=1), self.plain.counts(place).sum(axis=1)
        one = (n > 1) & (weight**2 < ONE_CARRIES * self.plain.mass[:, place])
        involved = range(len(one)) if ESTIMATORS[estimator].adjusts else (0, arm)  # coefficients are those of all arms
        if self.plain.shape.weighted and one[list(involved)].any():
            return CARRIED
        if not self.tallies.unfixed:
            return ""
        error, least = math.sqrt(float(difference_of(levels, 1).variance)), self._rounding(place)
        return EXPLAINED if 0 < error <= least / math.sqrt(max(sum(self.tallies.counts), 1)) else ""

    def ratio(self) -> SampleRatio:
        """Whether the arms got their share."""
        plan, tallies = self.plan, self.tallies
        if self.shares is not None:
            return sample_ratio_of_weights(plan, self._by_shares(self._sites.records), tallies.records)
        if self.strata is not None:
            if not plan.grouped:
                return sample_ratio_of_strata(plan, self.strata.records.reshape(-1, len(plan.arms)))
            return sample_ratio_of_weights(plan, tallies.plain().all_weights, tallies.records)
        # Records that were randomised one by one are to be counted, whatever clusters tie them together.
        if plan.grouped and (plan.release is not None or not plan.within_clusters):
            return sample_ratio_of_groups(tallies.records, plan.arms, once=plan.release is not None)
        counts = dict(zip(plan.arms, tallies.counts, strict=True))
        if plan.release is not None:
            return sample_ratio_with_noise(counts, plan.arms, float(cell_of(plan).scale[0]) ** 2)
        return sample_ratio(counts, plan.arms, "records")

    @property
    def _sites(self) -> Sums:
        assert self.strata is not None
        return self.strata

    def _by_shares(self, counts: Floats) -> Floats:
        """Counts by site, arm and group, each over the probability of its arm at its site, by arm and group."""
        assert self.shares is not None
        return over_strata(counts, 1 / self.shares)

    def losses(self) -> Iterator[Loss]:
        """What each outcome that records may lack has lost."""
        plan, strata, sums, of = self.plan, self.strata, self.plain, None
        for outcome in plan.outcomes:
            if self.tallies.released or not plan.lackable.intersection(outcome.columns):
                continue
            place, *_ = plan.places(outcome)
            if strata is not None and not plan.grouped:
                by_arm = (each.reshape(-1, len(plan.arms)).T for each in (strata.counts(place), strata.records))
                present, everyone = by_arm
                of = everyone - present, everyone
            elif self.shares is not None:
                if plan.shares_differ:
                    everyone, counts = self._sites.records, self._sites.counts(place)
                    of = self._by_shares(everyone - counts), self._by_shares(everyone)
            elif strata is not None:  # weighted by 1/π, the arms hold strata in the same proportions
                of = np.maximum(sums.all_weights - sums.weights(place), 0), sums.all_weights
            yield loss_of(outcome.name, list(plan.arms), sums.records - sums.counts(place), sums.records, of)

    def outlying(self) -> Iterator[Outlying]:
        """The groups of devices that stand out, by outcome and arm."""
        plan = self.plan
        for outcome in plan.outcomes:
            if not ESTIMATORS[MEDIAN_OF_MEANS].suits(plan) or MEDIAN_OF_MEANS not in outcome.READ_BY:
                continue
            found: dict[int, list[int]] = {}
            for arm, group in standing_out(cells_of(self.plain, plan.places(outcome)[0])):
                found.setdefault(arm, []).append(group)
            yield from (Outlying(outcome.name, list(plan.arms)[arm], groups) for arm, groups in found.items())

    def left_out_notes(self) -> list[str]:
        """The covariates that no regression has a use for, while the trial is rich."""
        if (cases := self.tallies.cases) is None or self.why:
            return []
        found = [set(left_out(part)) for part in cases.parts if part.n]
        return left_out_notes(self.plan, sorted(set.intersection(*found)) if found else [])
