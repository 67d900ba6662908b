"""The records of a device: checked one at a time, and at the end overwritten by made-up ones.

Linear algebra keeps its working memory for good, with the last numbers that went through it. Rows of the same shape
that take the same way end up in the same places.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from foldaway.errors import RecordError, instead_of
from foldaway.federated.modes import mode_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records import check
from foldaway.records.columns import REFUSED
from foldaway.records.faults import FaultyBatch

# More rows than this go through in pieces: further ones end up in the same places.
_ENOUGH = 1_000


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


def overwrite(plan: Plan, records: int) -> None:
    """Have as many made-up records as there were real ones take the way of these, and let go of all garbage.

    Args:
        plan: The plan of the real records.
        records: How many there were.

    Example:
        >>> overwrite(Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="scores"), 3)
    """
    chance = np.random.default_rng()
    plain = msgspec.structs.replace(plan, unit=None, complete_units=False)
    mode_of(plan).overwrite(plain, [_made_up(plain, chance) for _ in range(min(max(records, 1), _ENOUGH))])
    gc.collect()  # also empties Python's own list of freed floats, which keep their values


def _made_up(plan: Plan, chance: np.random.Generator) -> Floats:
    record: dict[str, Any] = {plan.arm: plan.control}
    for name in (*plan.covariates, *plan.outcomes):
        levels = plan.levels.get(name)
        record[name] = float(chance.standard_normal()) if levels is None else str(chance.choice(list(levels)))
    if plan.weight is not None:
        record[plan.weight] = float(chance.uniform(0.5, 1.5))
    return checked_row(plan, record)
