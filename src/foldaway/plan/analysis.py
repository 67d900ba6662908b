"""The settings of a plan as they are read, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan.allocation import Allocation
from foldaway.plan.columns import Columns
from foldaway.plan.groups import groups_for
from foldaway.plan.limits import ColumnLimits
from foldaway.plan.looks import Looks
from foldaway.plan.outcomes import Binning, Domain, Exits, Outcome, Value
from foldaway.plan.part import Fixed
from foldaway.plan.parts import Bootstrap, Coefficients, Federated, Moments, Privacy, Release, Strata
from foldaway.plan.protocol import Estimand, Flow
from foldaway.plan.vocabulary import COMPLIERS, MANY, MODES, MOMENTS, ONE, SUMS, TOGETHER, Keep, ModeName
from foldaway.plan.written import Written

SLIPS = 0.05
"""The share of faulty records up to which they are taken for single slips, and a limit is suggested."""

TIGHTEST_AT = 10_000
"""At so many records the any-time interval is tightest, where the plan does not say what to expect."""


class Analysis(Written, kw_only=True, eq=False, dict=True):  # type: ignore[misc]  # frozen, as what it extends
    """The settings as they are read, every part spelled out, and what follows from them."""

    if TYPE_CHECKING:  # a part is written in several ways and read in one
        arms = cast("Allocation", None)
        outcomes = cast("tuple[Outcome, ...]", ())
        covariates = cast("Columns", None)
        segments = cast("Columns", None)
        baseline = cast("Columns", None)
        coefficients = cast("Coefficients | None", None)
        looks = cast("Looks | None", None)
        moments = cast("Moments | None", None)
        strata = cast("Strata | None", None)
        privacy = cast("Privacy", None)
        federated = cast("Federated | None", None)
        release = cast("Release | None", None)
        estimand = cast("Estimand | None", None)
        flow = cast("Flow | None", None)

    @cached_property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """By column, the levels of covariates, segments and characteristics that the plan lists."""
        return Fixed({**self.baseline.levels, **self.segments.levels, **self.covariates.levels})

    @cached_property
    def limits(self) -> Mapping[str, ColumnLimits]:
        """By column, the bounds of outcomes and covariates, and what happens to values beyond them."""
        return Fixed(chain.from_iterable(limits.items() for limits in self.given_limits))

    @property
    def given_limits(self) -> list[Mapping[str, ColumnLimits]]:
        """The bounds that each outcome, and the covariates, give their columns."""
        return [*(outcome.limits for outcome in self.outcomes), self.covariates.limits]

    @cached_property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """By column, the lowest and the highest value of outcomes and covariates."""
        return Fixed({column: limits.bounds for column, limits in self.limits.items()})

    @property
    def mode(self) -> ModeName | None:
        """What devices send, if the records stay with them."""
        return None if self.federated is None else self.federated.mode

    @property
    def keeps(self) -> Keep:
        """What tallies are kept: sums, unless the plan or what devices send says otherwise."""
        if self.mode is not None:
            return MODES[self.mode].keeps
        return SUMS if self.moments is None else MOMENTS

    @property
    def estimators(self) -> Sequence[str]:
        """The estimators that the plan names, if it does."""
        return () if self.moments is None else self.moments.estimators

    @property
    def errors(self) -> Sequence[str]:
        """The kinds of standard error that the plan names, if it does."""
        return () if self.moments is None else self.moments.errors

    @property
    def bootstrap(self) -> Bootstrap | None:
        """The bootstrap, if the plan has one."""
        return None if self.moments is None else cast("Bootstrap | None", self.moments.bootstrap)

    @property
    def keeps_sums(self) -> bool:
        """Whether sums by group are kept, alone or beside moments: all but where devices send moments."""
        return self.federated is None or self.keeps == SUMS

    @property
    def grouped(self) -> bool:
        """Whether units are dealt into groups: where a unit may have several records, or only groups tell the error."""
        released = self.release is not None and not self.by_shares
        return self.keeps_sums and (not self._independent or released or self.received is not None)

    @property
    def groups(self) -> int:
        """Into how many groups units are dealt under a secret key."""
        return self.groups_of_parts(1)

    def groups_of_parts(self, parts: float) -> int:
        """Into how many, where every arm is cut into so many parts of about one size, each held by itself."""
        units = None if self.expected_units is None else self.expected_units * min(self.arms.values()) / parts
        return groups_for(units, self.privacy.smallest_cell)

    def parts_of(self, column: str) -> float:
        """Into how many parts a segment cuts every arm; without listed levels there is no telling how rare one is."""
        return len(self.levels_of(column) or ()) or math.inf

    @property
    def tightest_at(self) -> int:
        """The number of records (units, for clustered errors) at which the any-time interval is tightest."""
        return TIGHTEST_AT if self.expected_units is None else self.expected_units

    @property
    def clustering(self) -> str | None:
        """The column of what records have in common: the cluster if the plan names one, or else the unit."""
        return self.unit if self.cluster is None else self.cluster

    @property
    def drops(self) -> bool:
        """Whether faulty records are dropped and counted; if not, a batch that has one is refused."""
        return self.drop_limit > 0

    @property
    def whole_units(self) -> bool:
        """Whether all records of a unit come in one batch."""
        return self.records_per_unit == TOGETHER

    @property
    def one_each(self) -> bool:
        """Whether each record is of a unit of its own."""
        return self.federated is None and (self.unit is None or self.records_per_unit == ONE)

    @property
    def _independent(self) -> bool:
        """Whether each record is, and no cluster ties them together."""
        return self.one_each and self.cluster is None

    @property
    def several(self) -> bool:
        """Whether records may have something in common, so that an error must allow for it."""
        return not self._independent

    @property
    def within_clusters(self) -> bool:
        """Whether records were randomised one by one, and clusters tie them together."""
        return self.one_each and self.cluster is not None

    @property
    def by_shares(self) -> bool:
        """Whether a release needs no groups: the share of ones among independent records tells its own error."""
        alone = self._independent and not self.covariates
        shares = all(each.level in ("mean", "share") for each in self.outcomes)
        within = all(value.bounds(self.bounds) == (0, 1) for value in self.values)
        return self.release is not None and alone and shares and within

    @property
    def unit_records(self) -> int:
        """The most records that one of those that are counted, or protected by a release, can have in the tallies."""
        if self.federated is not None:
            return self.federated.device_records
        return (self.release is not None and self.whole_units and self.release.unit_records) or 1

    @property
    def protects(self) -> Literal["device", "unit", "record"]:
        """What a release protects: all of a unit that is sure to come together, or else a single record."""
        if self.federated is not None:
            return "device"
        return "record" if self.records_per_unit == MANY else "unit"

    @property
    def keyed(self) -> bool:
        """Whether a secret key hashes identifiers, or levels that the plan does not list."""
        return self.hashed or bool(self.unlisted or self.unlisted_characteristics)

    @property
    def unlisted(self) -> list[str]:
        """The segments whose levels the plan does not list."""
        return [column for column in self.segments if not self.levels_of(column)]

    @property
    def unlisted_characteristics(self) -> list[str]:
        """The characteristics of which records say whether they are numbers or text: without levels, no covariates."""
        return [column for column in self.baseline if not self.levels_of(column) and column not in self.covariates]

    @cached_property
    def shown_alone(self) -> frozenset[str]:
        """Characteristics that nothing else is computed from, so that a record may lack them."""
        stratum = [] if self.strata is None else [self.strata.column]
        return frozenset(self.baseline).difference(self.covariates, self.segments, stratum)

    @property
    def hashed(self) -> bool:
        """Whether a secret key hashes identifiers: to groups, to bootstrap weights, and to tell units apart."""
        if self.federated is not None:  # devices draw their groups; each site has a key of its own
            return self.grouped and self.unit is not None
        return self.bootstrap is not None or self.grouped or not (self._independent or self.whole_units)

    @property
    def weighted(self) -> bool:
        """Whether records count by weights in sums: the plan's, or one over their arm's probability in a stratum."""
        return self.weight is not None or self.strata is not None

    @property
    def strata_shares(self) -> Floats:
        """By stratum, the arms' probabilities."""
        assert self.strata is not None
        return np.array([[shares[arm] for arm in self.arms] for shares in self.strata.probabilities.values()])

    def evenness(self, arm: int) -> float:
        """The smaller probability of an arm and the control over the larger one; of strata, where it is least."""
        tables = [self.arms] if self.strata is None else list(self.strata.probabilities.values())
        pairs = [sorted((each[self.control], each[list(self.arms)[arm]])) for each in tables]
        return min(smaller / larger for smaller, larger in pairs)

    @property
    def control(self) -> str:
        """The arm that every other arm is compared with: the first."""
        return next(iter(self.arms))

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The numbers of a record that outcomes are computed from, each once."""
        own = (value for outcome in self.outcomes for value in outcome.values)
        compared = [] if self.received is None else [each for each in self.outcomes if COMPLIERS in each.READ_BY]
        return tuple(dict.fromkeys((*own, *map(self._received_beside, compared))))

    def receipt(self, outcome: Outcome) -> int:
        """Where what was received stands among the values, over the records that have the outcome."""
        return self.values.index(self._received_beside(outcome))

    def _received_beside(self, outcome: Outcome) -> Value:
        assert self.received is not None
        return Value(self.received, beside=tuple(name for name in outcome.columns if name in self.lackable))

    @property
    def looked_at(self) -> Outcome:
        """The outcome that planned looks decide on: the primary one, or else the first."""
        return next((each for each in self.outcomes if each.counts_as == "primary"), self.outcomes[0])

    def outcome(self, name: str) -> Outcome:
        """The outcome of a name."""
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    def places(self, outcome: Outcome) -> tuple[int, ...]:
        """Where the outcome's values stand among all of them."""
        return tuple(map(self.values.index, outcome.values))

    @cached_property
    def bins(self) -> tuple[Binning, ...]:
        """The bins of each histogram that is kept, each once."""
        found = (outcome.binning for outcome in self.outcomes)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    @property
    def exits_by_stratum(self) -> tuple[int, ...]:
        """Which of `bins` are kept by stratum besides: those of exits, since hazards are compared within strata."""
        if self.strata is None:
            return ()
        return tuple(place for place, bins in enumerate(self.bins) if isinstance(bins, Exits))

    def read_from(self, value: Value) -> list[Outcome]:
        """The outcomes that are computed from a value."""
        return [outcome for outcome in self.outcomes if value in outcome.values]

    @property
    def value_bounds(self) -> tuple[tuple[float, float], ...]:
        """Between which numbers each value lies; a plan with a `release` has bounds for all."""
        bounds = [value.bounds(self.bounds) for value in self.values]
        return tuple(ends for ends in bounds if ends is not None)

    @property
    def of_devices_sums(self) -> bool:
        """Whether devices or sites send sums, and nothing else is known of their records."""
        return self.mode is not None and MODES[self.mode].keeps == SUMS

    @property
    def unbounded(self) -> list[str]:
        """Columns of values and covariates that need bounds where all must have some, and have none."""
        values = [v.column for v in self.values if v.column != self.received and v.bounds(self.bounds) is None]
        return values + [name for name in self.covariates if name not in self.levels and name not in self.bounds]

    @cached_property
    def domains(self) -> Mapping[str, tuple[Domain, ...]]:
        """By column, what outcomes say that its numbers may be."""
        found: dict[str, dict[Domain, None]] = {}
        for column, domain in chain.from_iterable(outcome.domains.items() for outcome in self.outcomes):
            found.setdefault(column, {})[domain] = None
        return {column: tuple(domains) for column, domains in found.items()}

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """The columns of a record that outcomes are computed from, each once."""
        receipt = () if self.received is None else (self.received,)
        return tuple(dict.fromkeys((*(column for outcome in self.outcomes for column in outcome.columns), *receipt)))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The places of values whose products are summed: a ratio's error of independent records is read from them."""
        if self.keeps != SUMS or self.federated is not None or self.release is not None:
            return ()
        places = (self.places(outcome) for outcome in self.outcomes)
        return tuple(dict.fromkeys((pair[0], pair[1]) for pair in places if len(pair) == 2))

    @cached_property
    def lackable(self) -> frozenset[str]:
        """The columns that a record may lack: all outcomes that are computed from them allow it; never `received`."""
        needed = {column for each in self.outcomes if each.missing == "refused" for column in each.columns}
        return frozenset(self.measured) - needed - {self.received}

    @property
    def lacking(self) -> bool:
        """Whether a record may lack a value."""
        return bool(self.lackable)

    @property
    def sites_only(self) -> bool:
        """Whether no device can take part in a federated plan: its message cannot say what the plan asks for."""
        by_sites = self.lacking or self.strata is not None or bool(self.baseline or self.segments)
        by_sites = by_sites or any(each.KIND == "survival" for each in self.outcomes)
        return self.federated is not None and by_sites

    @property
    def within_sites(self) -> bool:
        """Whether arms are compared within sites, which send sums and need not be named by records."""
        if self.federated is None or self.unit is None or self.keeps != SUMS or self.strata is not None:
            return False
        return self.federated.within_sites

    @property
    def within_strata(self) -> bool:
        """Whether arms are compared within strata, or within sites."""
        return self.strata is not None or self.within_sites

    @property
    def shares_differ(self) -> bool:
        """Whether the arms have other probabilities in some strata, or at some sites, than elsewhere."""
        if self.strata is not None:
            return not self.strata.alike
        return self.within_sites and bool(self.federated and self.federated.probabilities)

    @cached_property
    def present_together(self) -> tuple[tuple[int, ...], ...]:
        """Values by place, in sets that a record has or lacks together."""
        sets: dict[frozenset[str], list[int]] = {}
        for place, value in enumerate(self.values):
            sets.setdefault(self.lackable.intersection(value.columns), []).append(place)
        return tuple(map(tuple, sets.values()))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of a row's columns: intercept, covariates (levels but the first), values."""
        return (*self.regressors, *(value.name for value in self.values))

    @cached_property
    def regressors(self) -> tuple[str, ...]:
        """The names of the intercept and the columns of covariates and fixed effects."""
        return (*self.predictors, *chain.from_iterable(map(self._columns_of, self.fixed_effects)))

    @cached_property
    def predictors(self) -> tuple[str, ...]:
        """The names of the intercept and the covariates' columns, from which coefficients predict outcomes."""
        return ("1", *chain.from_iterable(map(self._columns_of, self.covariates)))

    @cached_property
    def traits(self) -> tuple[tuple[str, str | None], ...]:
        """What the baseline table has a mean or a share of: numeric columns, and each level of the others."""
        levels = ((column, self.levels_of(column) or (None,)) for column in self.baseline)
        return tuple((column, level) for column, those in levels for level in those)

    def _columns_of(self, covariate: str) -> list[str]:
        levels = self.levels_of(covariate)
        return [f"{covariate}[{level}]" for level in levels[1:]] if levels else [covariate]

    @property
    def fixed_effects(self) -> tuple[str, ...]:
        """The column of the strata, where regressions have an intercept for each stratum."""
        return (self.strata.column,) if self.strata is not None and self.keeps == MOMENTS else ()

    def levels_of(self, column: str) -> Sequence[str] | None:
        """The levels of a column that the plan lists; None if it lists none."""
        if self.strata is not None and column == self.strata.column:
            return tuple(self.strata.probabilities)
        return self.levels.get(column)
