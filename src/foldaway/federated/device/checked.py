"""One record on a device: checked as a batch of one, and told about in words for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foldaway.errors import RecordError, instead_of
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
    with instead_of(RecordError, _of_one):
        batch, _ = check([record], plan)
    return np.append(batch.assemble(slice(0, 1))[:, 0], 1.0 if batch.weight is None else batch.weight[0])


def _of_one(error: RecordError) -> RecordError:
    """The refusal of a batch, as one of its only record."""
    if not isinstance(error, FaultyBatch):
        return RecordError(str(error).replace(REFUSED, "the record was not taken"))
    columns = [f"{column} ({', '.join(rules)})" for column, rules in error.faults.by_column().items()]
    return RecordError(f"the record was not taken: faulty in {'; '.join(columns)}. Mend it, and give it again.")
