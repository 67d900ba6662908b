"""One record on a device: checked as a batch of one, and told about in words for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foldaway.errors import RecordError
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records import check
from foldaway.records.columns import REFUSED
from foldaway.records.faults import FaultyBatch


def checked_row(plan: Plan, record: Mapping[str, Any]) -> Floats:
    """The record's row z = [1, x, y], and its weight.

    Args:
        plan: A plan that refuses faulty records.
        record: All of the plan's columns.

    Raises:
        RecordError: The record is faulty; the message does not repeat it.

    Example:
        >>> checked_row(Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]), {"g": "a", "y": 2.5})
        array([1. , 2.5, 1. ])
    """
    try:
        batch, _ = check([record], plan)
    except FaultyBatch as faulty:
        columns = [f"{column} ({', '.join(rules)})" for column, rules in faulty.faults.by_column().items()]
        refusal = f"the record was not taken: faulty in {'; '.join(columns)}. Mend it, and give it again."
    except RecordError as refused:
        refusal = str(refused).replace(REFUSED, "the record was not taken")
    else:
        return np.append(batch.assemble(slice(0, 1))[:, 0], 1.0 if batch.weight is None else batch.weight[0])
    raise RecordError(refusal)
