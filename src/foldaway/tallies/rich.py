"""A trial that is rich: while nothing has left memory, moments by group.

Any regression, on all records, follows from them. A trial with covariates begins so, unless its plan has coefficients.
`Trial.fix`, which `save` and `dumps` call, fixes a predictor and makes it lean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.records.batch import Batch
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.grouped import Grouped, GroupedState
from foldaway.tallies.lean import Lean
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.segment import SegmentTallies
from foldaway.tallies.sums import Sums, SumsShape

FOLDS = 16
"""Into so many parts records without units are dealt in turn, so that coefficients can be fitted without each."""


@dataclass(frozen=True, slots=True)
class Rich(Grouped):
    """Moments by group. A value: folding and adding give a new one.

    Attributes:
        groups: In how many groups sums are kept once the trial is lean; moments may have more, so that coefficients can
            be fitted without each.
        cases: The moments, of complete cases.
    """

    groups: int
    cases: CompleteCases

    @property
    def records(self) -> Floats:
        """The number of records, by arm and group."""
        records = self.cases.records
        joined: Floats = records.reshape(len(records), -1, self.groups).sum(axis=1)
        return joined

    @property
    def shape(self) -> SumsShape:
        """Of the sums that are kept once the trial is lean."""
        return self.cases.shape._replace(groups=self.groups)

    def plain(self) -> Sums:
        """Sums of the outcomes."""
        return self.cases.lean(None).regrouped(self.groups)

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        whole, batch = batch, self._for_sums(batch)
        # In turn: coefficients are fitted without each part. A key without groups is that of bootstrap weights.
        if batch.key is None or (self.arms is not None and not self.plan.grouped):
            batch = replace(batch, key=np.arange(self.cases.n, self.cases.n + len(batch), dtype=np.uint64))
        return replace(self, cases=self.cases.fold(batch.alike()), **self._folded(batch, whole))

    def of_arms(self, places: Sequence[int]) -> Self:
        """The same of the arms at these places, an empty one where a place is -1; segments are left out."""
        histograms = tuple(each.of_arms(places) for each in self.histograms)
        strata = self._strata_of_arms(places)
        return replace(
            self,
            cases=self.cases.of_arms(places),
            histograms=histograms,
            segments=(),
            strata=strata,
            arms=None,
            baseline=None,
        )

    def fixed(self, predictor: Predictor | None, without: Floats | None = None, why: str = "") -> Lean:
        """The same records as sums, from here on with this predictor: see `Held.fixed`."""
        sums = self.cases.lean(predictor, without).regrouped(self.groups)
        segments = (SegmentTallies(each.levels, each.cells.fixed(predictor, without, why)) for each in self.segments)
        strata = None if self.strata is None else self.strata.fixed(predictor, without, why)
        return Lean(
            self.plan,
            sums,
            predictor,
            "" if predictor is not None else why,
            **self._beside() | {"segments": tuple(segments), "strata": strata},
        )

    def _joined(self, other: Grouped) -> Grouped:
        if isinstance(other, Rich):
            return replace(self, cases=self.cases + other.cases, **self._both(other))
        return self.fixed(other.predictor, why=other.why) + other

    def pooled(self) -> Self:
        """With levels of covariates pooled in moments by arm; those of segments may become common until it is lean."""
        return self if self.arms is None else replace(self, arms=self.arms.pooled())

    def state(self) -> GroupedState:
        """What is exchanged between workers of one run, encrypted."""
        return self._state(moments=self.cases.state() if self.n else None)
