"""Folding on Dask: every partition on the worker that reads it, the tallies merged in a tree.

Example:
    >>> import foldaway as fa
    >>> from foldaway.engines import dask
    >>> import dask.dataframe as dd, pandas as pd
    >>> plan = fa.Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    >>> rows = pd.DataFrame({"group": ["a", "b"] * 50, "y": range(100)})
    >>> dask.fold(dd.from_pandas(rows, npartitions=3), plan)
    Trial: demo | n=100 | a=50, b=50
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foldaway.engines.dask.spilling import SPILLS, require_no_spilling, this_worker_may_spill
from foldaway.engines.partial import Partial, fold_partition, key_for, merged, plan_columns, trial_of
from foldaway.engines.wrapping import Wrapping
from foldaway.errors import SourceError, instead_of
from foldaway.plan import Plan
from foldaway.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

FAN_IN = 8
"""States merged by one task."""

_COLUMN = "parcel"


def fold(ddf: Any, plan: Plan, *, key: bytes | None = None, units_together: bool = False) -> Trial:
    """Fold a Dask data frame of any size, on whatever scheduler is set.

    Only the plan's columns are read. On a cluster, no worker may be set up to write records to its disk when memory
    runs short; docs/engines.md has the settings.

    Args:
        ddf: The data frame.
        plan: The plan.
        key: The bootstrap's key, for plans with a bootstrap; a new one if left out.
        units_together: For plans with `complete_units`: that all records of a unit already lie in one partition, so
            that Dask need not move records between workers.

    Returns:
        The trial of all records.

    Raises:
        PlanError: A worker of the cluster may write records to its disk; nothing was read.
        RecordError: A column is missing, or a record is faulty; nothing was folded.
        SourceError: Dask could not run the data frame.
    """
    if not hasattr(ddf, "map_partitions") or not hasattr(ddf, "columns"):
        raise SourceError(f"dask.fold takes a Dask data frame, not {type(ddf).__name__}.")
    key = key_for(plan, key)
    names = plan_columns(plan, list(ddf.columns))
    require_no_spilling(ddf)
    wrapping = Wrapping()
    work = _Work(plan, key, wrapping.key)
    records = ddf[names]
    if plan.complete_units and not units_together:
        # By tasks: the other ways to shuffle go through files.
        records = records.shuffle(plan.unit, shuffle_method="tasks")
    parcels = _computed(records, work)
    return trial_of((Partial.loads(wrapping.unwrap(parcel)) for parcel in parcels), plan, key)


def _computed(records: Any, work: _Work) -> list[bytes]:
    """The parcels; an error may quote records, so only its kind is told."""
    refusal = (
        "Dask could not run the data frame ({}); nothing was folded. Dask's own words may quote records: to see them, "
        "run the data frame by itself."
    )
    with instead_of(Exception, lambda error: SourceError(refusal.format(type(error).__name__))):
        whole = records.reduction(
            work.fold, combine=work.merge, aggregate=work.merge, split_every=FAN_IN, meta=_frame([])
        )
        return list(whole.compute()[_COLUMN])


@dataclass(frozen=True)
class _Work:
    """What the workers do; it travels inside the tasks, which stay in memory."""

    plan: Plan
    key: bytes | None = field(repr=False)
    wrapping: bytes = field(repr=False)

    def fold(self, rows: pd.DataFrame) -> pd.DataFrame:
        """A partition as one parcel."""
        if this_worker_may_spill():
            return self._parcels(Partial(refusal=f"Some {SPILLS}"))
        return self._parcels(fold_partition([rows] if len(rows) else [], self.plan, self.key))

    def merge(self, parcels: pd.DataFrame) -> pd.DataFrame:
        """Several parcels as one."""
        wrapping = Wrapping(self.wrapping)
        return self._parcels(merged(Partial.loads(wrapping.unwrap(parcel)) for parcel in parcels[_COLUMN]))

    def _parcels(self, partial: Partial) -> pd.DataFrame:
        return _frame([Wrapping(self.wrapping).wrap(partial.dumps())])


def _frame(parcels: list[bytes]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({_COLUMN: pd.Series(parcels, dtype=object)})
