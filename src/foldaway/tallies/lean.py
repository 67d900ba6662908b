"""A trial that is lean: sums by group.

From the moment when a predictor is fixed, a record's covariates are used and gone as it is folded. A trial whose plan
has coefficients, or no covariates, is lean from its first record.

Two trials with different predictors have their plain outcomes in common, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from foldaway.keeping.state import Array
from foldaway.numerics.block import Floats
from foldaway.records.batch import Batch
from foldaway.tallies.group_folding import fold_sums
from foldaway.tallies.grouped import Grouped, GroupedState
from foldaway.tallies.predictor import Predictor
from foldaway.tallies.release import ReleasedState, release, released_sums
from foldaway.tallies.sums import Sums, SumsShape

DIFFERENT = "the tallies that were merged were adjusted with different coefficients"


@dataclass(frozen=True, slots=True)
class Lean(Grouped):
    """Sums by group. A value: folding and adding give a new one.

    Attributes:
        sums: The sums.
        predictor: What makes ỹ of a record; None where outcomes are not adjusted.
        why: Why they are not, in a sentence without a capital; empty if they are, or need not be.
        released: Whether the sums are those of a release, with noise.
    """

    sums: Sums
    predictor: Predictor | None = None
    why: str = ""
    released: bool = False

    @property
    def records(self) -> Floats:
        """The number of records, by arm and group."""
        return self.sums.records

    @property
    def shape(self) -> SumsShape:
        """Of the sums, as if outcomes were adjusted wherever they could be."""
        return self.sums.shape._replace(adjusted=bool(self.plan.covariates))

    def plain(self) -> Sums:
        """The sums."""
        return self.sums

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        whole, batch = batch, self._for_sums(batch)
        batch = batch.assembled_once() if batch.segments or self.strata else batch
        return replace(self, sums=fold_sums(self.sums, batch.alike(), self.predictor), **self._folded(batch, whole))

    def fold_totals(
        self,
        arm: NDArray[np.intp],
        group: NDArray[np.intp],
        counts: NDArray[np.int64],
        totals: Floats,
        present: Floats | None = None,
    ) -> Self:
        """Take in sums over each unit's records, in strata by stratum and arm: see `Sums.fold_totals`."""
        if self.strata is None or self.plan.strata is None:
            return replace(self, sums=self.sums.fold_totals(arm, group, counts, totals, present))
        assert isinstance(self.strata, Lean)
        inverse, arms = 1 / self.plan.strata_shares.reshape(-1)[arm], len(self.plan.arms)
        sums = self.sums.fold_totals(arm % arms, group, counts, totals, present, inverse)
        strata = replace(self.strata, sums=self.strata.sums.fold_totals(arm, group, counts, totals, present))
        return replace(self, sums=sums, strata=strata)

    def without(self, other: Self) -> Self:
        """The same without devices that are in it: see `Sums.without`."""
        return replace(self, sums=self.sums.without(other.sums))

    def of_arms(self, places: Sequence[int]) -> Self:
        """The same of the arms at these places, an empty one where a place is -1; segments are left out."""
        histograms = tuple(each.of_arms(places) for each in self.histograms)
        sums = self.sums.of_arms(places)
        strata = self._strata_of_arms(places)
        return replace(self, sums=sums, histograms=histograms, segments=(), strata=strata, arms=None, baseline=None)

    def fixed(self, predictor: Predictor | None, without: Floats | None = None, why: str = "") -> Self:
        """As it is: its predictor was fixed before."""
        return self

    def release(self) -> Self:
        """The sums with noise in the place of the exact ones; a second time it is the same."""
        return self if self.released else replace(self, sums=release(self.plan, self.sums), released=True)

    def publish(self, records: Floats, totals: Floats) -> Self:
        """The same plan's released sums, from noisy n, and Σy and Σỹ, by arm and group."""
        return replace(self, sums=released_sums(self.plan, records, totals), released=True)

    def _joined(self, other: Grouped) -> Grouped:
        two = other.fixed(self.predictor, why=self.why)
        sums, both = two.plain(), self._both(two)
        if _same(self.predictor, two.predictor):
            return replace(self, sums=self.sums + sums, why=self.why or two.why, **both)
        before = next((why for why in (self.why, two.why) if why.startswith(DIFFERENT)), "")
        why = before or _different(self.predictor, two.predictor)
        return replace(self, sums=self.sums.unadjusted() + sums.unadjusted(), predictor=None, why=why, **both)

    def state(self) -> GroupedState:
        """What is kept."""
        if self.released:
            return GroupedState(released=ReleasedState(Array.of(self.sums.records), Array.of(self.sums.total)))
        state = self._state(sums=self.sums.state() if self.n else None, why=self.why)
        if self.predictor is not None and self.plan.coefficients is None:
            state.center, state.slopes = Array.of(self.predictor.center), Array.of(self.predictor.slopes)
        return state


def _same(one: Predictor | None, two: Predictor | None) -> bool:
    return one is two or (one is not None and two is not None and one.digest == two.digest)


def _different(*predictors: Predictor | None) -> str:
    """Why `adjusted` is withheld, with digests by which the states can be told apart."""
    digests = sorted("none" if each is None else each.digest[:12] for each in predictors)
    return (
        f"{DIFFERENT} (digests {' and '.join(digests)}), so only their plain outcomes can be added. Put the same "
        "coefficients into every part's plan: `foldaway plan calibrate`."
    )
