"""Folding on Dask: every partition on the worker that reads it, the tallies merged in a tree.

Between reading a partition and folding it, its records are the result of a task in the memory of a worker. A worker of
a cluster that runs short of memory writes such results to its disk, in the clear, unless its settings forbid it, so a
cluster whose settings do not is refused. Local threads and processes have no such place. Pausing and restarting
workers, what Dask does at still higher use, writes nothing.

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

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foldaway.engines.partial import Partial, fold_partition, key_for, merged, plan_columns, travel_key, trial_of
from foldaway.errors import PlanError, SourceError, instead_of
from foldaway.plan import Plan
from foldaway.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

FAN_IN = 8
"""States merged by one task."""

_COLUMN = "parcel"

_SPILLS = """\
workers of the Dask cluster write records to their disks, in the clear, when memory runs short. Forbid it where the \
workers are started, in the configuration of Dask (~/.config/dask/distributed.yaml), and start them again:

distributed:
  worker:
    memory:
      target: false
      spill: false"""


def fold(ddf: Any, plan: Plan, *, key: bytes | None = None, units_together: bool = False) -> Trial:
    """Fold a Dask data frame of any size, on whatever scheduler is set.

    Only the plan's columns are read. On a cluster, no worker may be set up to write records to its disk when memory
    runs short; docs/engines.md has the settings.

    Args:
        ddf: The data frame.
        plan: The plan.
        key: The trial's key; if left out, that of this machine's user.
        units_together: With `records_per_unit = "together"`, that all records of a unit already lie in one partition,
            so that Dask need not move records between workers.

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
    work = _Work(plan, key, travel_key())
    records = ddf[names]
    if plan.whole_units and not units_together:
        # By tasks: the other ways to shuffle go through files.
        records = records.shuffle(plan.unit, shuffle_method="tasks")
    refusal = (
        "Dask could not run the data frame ({}); nothing was folded. Dask's own words may quote records: to see them, "
        "run the data frame by itself."
    )
    with instead_of(Exception, lambda error: SourceError(refusal.format(type(error).__name__))):
        whole = records.reduction(
            work.fold, combine=work.merge, aggregate=work.merge, split_every=FAN_IN, meta=_frame([])
        )
        parcels = list(whole.compute()[_COLUMN])
    return trial_of((Partial.within(parcel, work.travel_key) for parcel in parcels), plan, key)


@dataclass(frozen=True)
class _Work:
    """What the workers do; it travels inside the tasks, which stay in memory."""

    plan: Plan
    key: bytes | None = field(repr=False)
    travel_key: bytes = field(repr=False)

    def fold(self, rows: pd.DataFrame) -> pd.DataFrame:
        """A partition as one parcel."""
        if _this_worker_may_spill():
            partial = Partial(refusal=f"Some {_SPILLS}")
        else:
            partial = fold_partition([rows] if len(rows) else [], self.plan, self.key)
        return _frame([partial.sealed(self.travel_key)])

    def merge(self, parcels: pd.DataFrame) -> pd.DataFrame:
        """Several parcels as one."""
        partial = merged(Partial.within(parcel, self.travel_key) for parcel in parcels[_COLUMN])
        return _frame([partial.sealed(self.travel_key)])


def _frame(parcels: list[bytes]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({_COLUMN: pd.Series(parcels, dtype=object)})


def require_no_spilling(records: Any) -> None:
    """Refuse a cluster some worker of which would spill; whatever else runs the data frame is let pass.

    Raises:
        PlanError: A worker may write records to its disk; the message says how to forbid it.
        SourceError: The workers cannot be asked.
    """
    from dask.base import get_scheduler

    scheduler = get_scheduler(collections=[records])  # type: ignore[no-untyped-call]
    client = getattr(scheduler, "__self__", None)
    if client is None or "distributed" not in sys.modules:
        return
    from distributed import Client

    if not isinstance(client, Client):
        return
    refusal = (
        "the workers of the Dask cluster could not be asked whether they write records to their disks ({}); nothing "
        "was folded. foldaway must be installed on all of them, at one version."
    )
    with instead_of(Exception, lambda error: SourceError(refusal.format(type(error).__name__))):
        answers = client.run(_may_spill)
    if spilling := sum(answers.values()):
        raise PlanError(f"{spilling} of {len(answers)} {_SPILLS}")


def _this_worker_may_spill() -> bool:
    """Whether this code runs on a worker that may: one that came after the others were asked."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # threads or processes without a cluster
        return False
    return _may_spill(worker)


def _may_spill(dask_worker: Any) -> bool:
    # A worker that may not spill keeps its data in a plain dict; its settings may have changed since it was started.
    return type(dask_worker.data) is not dict
