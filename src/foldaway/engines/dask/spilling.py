"""Whether Dask's workers would write records to their disks.

Between reading a partition and folding it, its records are the result of a task in the memory of a worker. A worker of
a cluster that runs short of memory writes such results to its disk, in the clear, unless its settings forbid it; local
threads and processes have no such place. Pausing and restarting workers, what Dask does at still higher use, writes
nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from foldaway.errors import PlanError, SourceError, instead_of

SPILLS = """\
workers of the Dask cluster write records to their disks, in the clear, when memory runs short. Forbid it where the \
workers are started, in the configuration of Dask (~/.config/dask/distributed.yaml), and start them again:

distributed:
  worker:
    memory:
      target: false
      spill: false"""


def require_no_spilling(records: Any) -> None:
    """Refuse a cluster some worker of which would spill; whatever else runs the data frame is let pass.

    Raises:
        PlanError: A worker may write records to its disk; the message says how to forbid it.
        SourceError: The workers cannot be asked.
    """
    client = _cluster_of(records)
    if client is None:
        return
    refusal = (
        "the workers of the Dask cluster could not be asked whether they write records to their disks ({}); nothing "
        "was folded. foldaway must be installed on all of them, at one version."
    )
    with instead_of(Exception, lambda error: SourceError(refusal.format(type(error).__name__))):
        answers = client.run(_may_spill)
    if spilling := sum(answers.values()):
        raise PlanError(f"{spilling} of {len(answers)} {SPILLS}")


def this_worker_may_spill() -> bool:
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


def _cluster_of(records: Any) -> Any:
    """The client of the cluster on which the data frame would run, if it would run on one."""
    from dask.base import get_scheduler

    scheduler = get_scheduler(collections=[records])  # type: ignore[no-untyped-call]
    runner = getattr(scheduler, "__self__", None)
    if runner is None or "distributed" not in sys.modules:
        return None
    from distributed import Client

    return runner if isinstance(runner, Client) else None
