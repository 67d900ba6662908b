"""What a trial holds that keeps sums: rich in memory, lean at the door.

While nothing has left memory, a trial with covariates holds moments by group: any regression, on all records, follows
from them. `save` and `dumps` fix a predictor and map the moments to sums (`predictor.lean`); from then on a record's
covariates are used and gone as it is folded. A trial whose plan has coefficients, or no covariates, holds sums from its
first record.

Two trials with different predictors have their plain outcomes in common, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.batch import Batch
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.group_folding import fold_sums
from foldaway.tallies.predictor import Predictor, predictor_of
from foldaway.tallies.release import release, released_state, restored_release
from foldaway.tallies.sums import Sums, SumsShape

FOLDS = 16
"""Into so many parts records without units are dealt in turn, so that coefficients can be fitted without each."""

DIFFERENT = (
    "the tallies that were merged were adjusted with different coefficients, so only their plain outcomes can be "
    "added. Put the same coefficients into every part's plan: `foldaway plan calibrate`."
)


class GroupedState(msgspec.Struct):
    """What is kept, or exchanged between workers while it is rich.

    Attributes:
        moments: Moments by group, of a trial that is not lean yet.
        sums: Sums by group, of one that is.
        center: Of a predictor that was found during the trial.
        slopes: Likewise.
        why: Why outcomes are not adjusted, if they are not and could be.
        released: The sums with noise, once these are all that there is.
    """

    moments: Any = None
    sums: Any = None
    center: Array | None = None
    slopes: Array | None = None
    why: str = ""
    released: Any = None


@dataclass(frozen=True, slots=True)
class Grouped:
    """Sums by group, or the moments that they will come from. A value: folding and adding give a new one.

    Attributes:
        plan: The plan.
        moments: While the trial is rich.
        sums: Once it is lean.
        predictor: What makes ỹ of a record, once that is fixed.
        why: Why outcomes are not adjusted, in a sentence without a capital; empty if they are, or the trial is rich.
        released: Whether the sums are those of a release, with noise.
    """

    plan: Plan
    moments: CompleteCases | None
    sums: Sums | None
    predictor: Predictor | None = None
    why: str = ""
    released: bool = False

    @classmethod
    def empty(cls, plan: Plan) -> Self:
        """What is held of no records."""
        predictor = predictor_of(plan)
        if plan.covariates and predictor is None:
            return cls(plan, CompleteCases.empty(plan, plan.groups if plan.grouped else FOLDS), None)
        return cls(plan, None, Sums.empty(_sums_shape(plan, adjusted=predictor is not None)), predictor)

    @property
    def records(self) -> Floats:
        """The number of records, by arm and group."""
        tally = self.sums or self.moments
        assert tally is not None
        return tally.records

    @property
    def counts(self) -> list[int]:
        """The number of records, by arm."""
        return [max(round(n), 0) for n in self.records.sum(axis=1).tolist()]

    @property
    def size(self) -> int:
        """How many numbers are kept once the trial is lean, whatever the number of records."""
        return sum(array.size for array in self.lean_arrays().values())

    def plain(self) -> Sums:
        """Sums of the outcomes, whatever else is held."""
        if self.sums is not None:
            return self.sums
        assert self.moments is not None
        sums = self.moments.lean(None)
        return sums if self.plan.grouped else sums.regrouped(1)

    def lean_arrays(self) -> dict[str, Floats]:
        """The arrays that are kept once the trial is lean, by name, as they are without records."""
        return Sums.empty(_sums_shape(self.plan, adjusted=bool(self.plan.covariates))).arrays()

    def fold(self, batch: Batch) -> Self:
        """Take a batch in."""
        if self.moments is None:
            assert self.sums is not None
            return replace(self, sums=fold_sums(self.sums, batch, self.predictor))
        if batch.key is None:  # in turn, so that coefficients can be fitted without each part
            batch = replace(batch, key=np.arange(self.moments.n, self.moments.n + len(batch), dtype=np.uint64))
        return replace(self, moments=self.moments.fold(batch))

    def fold_totals(
        self, arm: NDArray[np.intp], group: NDArray[np.intp], counts: NDArray[np.int64], totals: Floats
    ) -> Self:
        """Take in sums over each unit's records: see `Sums.fold_totals`."""
        assert self.sums is not None
        return replace(self, sums=self.sums.fold_totals(arm, group, counts, totals))

    def mean_squares(self) -> Floats:
        """About the mean square of each column, from the spread of totals over the cells."""
        assert self.sums is not None
        n = self.sums.records[self.sums.records > 0][:, None]
        totals = self.sums.total[self.sums.records > 0]
        mean = totals.sum(axis=0) / n.sum()
        squares: Floats = mean**2 + np.mean((totals - n * mean) ** 2 / n, axis=0)
        return squares

    def fixed(self, predictor: Predictor | None, without: Floats | None = None, why: str = "") -> Self:
        """The same records as sums, from here on with this predictor.

        Args:
            predictor: None if outcomes are not adjusted.
            without: See `predictor.lean`.
            why: Why they are not.
        """
        if self.moments is None:
            return self
        sums = self.moments.lean(predictor, without)
        return replace(
            self,
            moments=None,
            sums=sums if self.plan.grouped else sums.regrouped(1),
            predictor=predictor,
            why="" if predictor is not None else why,
        )

    def release(self) -> Self:
        """The sums with noise in the place of the exact ones; a second time it is the same."""
        if self.released:
            return self
        assert self.sums is not None
        return replace(self, sums=release(self.plan, self.sums), released=True)

    def __add__(self, other: Self) -> Self:
        """Both sets of records; moments are mapped with the predictor of the sums that they are added to."""
        if self.released or other.released:
            raise StateError("a trial that was released has only noisy sums, which cannot be merged.")
        if not (sum(self.counts) and sum(other.counts)):
            return self if sum(self.counts) else other
        if self.moments is not None and other.moments is not None:
            return replace(self, moments=self.moments + other.moments)
        one = self.fixed(other.predictor, why=other.why)
        two = other.fixed(self.predictor, why=self.why)
        assert one.sums is not None
        assert two.sums is not None
        if _same(one.predictor, two.predictor):
            return replace(one, sums=one.sums + two.sums, why=one.why or two.why)
        sums = one.sums.unadjusted() + two.sums.unadjusted()
        return replace(one, sums=sums, predictor=None, why=DIFFERENT)

    def state(self) -> GroupedState:
        """What is kept."""
        if self.released:
            assert self.sums is not None
            return GroupedState(released=released_state(self.sums))
        moments = None if self.moments is None or not self.moments.n else self.moments.state()
        sums = None if self.sums is None or not self.sums.n else self.sums.state()
        if self.predictor is None or self.plan.coefficients is not None:
            return GroupedState(moments, sums, why=self.why)
        return GroupedState(moments, sums, Array.of(self.predictor.center), Array.of(self.predictor.slopes), self.why)

    @classmethod
    def restore(cls, state: Any, plan: Plan) -> Self:
        """What was held, from its state."""
        saved = decode_part(state, GroupedState)
        empty = cls.empty(plan)
        if saved.released is not None:
            sums = restored_release(saved.released, plan)
            return replace(empty, sums=sums, released=True)
        if saved.moments is not None:
            if empty.moments is None or saved.sums is not None:
                raise StateError("the state does not fit its plan: it has other tallies.")
            return replace(empty, moments=empty.moments.restored(saved.moments))
        if saved.sums is None:
            return empty
        predictor = empty.predictor
        if saved.center is not None and saved.slopes is not None and empty.moments is not None:
            columns = len(plan.regressors) - 1
            predictor = Predictor(saved.center.read(columns), saved.slopes.read(len(plan.values), columns))
        adjusted = predictor is not None and not saved.why
        if plan.covariates and not adjusted and not saved.why:
            raise StateError("the state is damaged: its outcomes are not adjusted, and it does not say why.")
        sums = Sums.restore(saved.sums, _sums_shape(plan, adjusted=adjusted))
        return cls(plan, None, sums, predictor if adjusted else None, saved.why)


def _sums_shape(plan: Plan, *, adjusted: bool) -> SumsShape:
    groups = plan.groups if plan.grouped else 1
    return SumsShape(
        len(plan.arms), len(plan.values), groups, adjusted, plan.weight is not None, plan.lacking, plan.pairs
    )


def _same(one: Predictor | None, two: Predictor | None) -> bool:
    if one is None or two is None:
        return one is two
    return np.array_equal(one.center, two.center) and np.array_equal(one.slopes, two.slopes)
