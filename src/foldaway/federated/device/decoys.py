"""Made-up records that take the way of real ones: they overwrite what these have left in working memory.

Linear algebra keeps its working memory for good, with the last numbers that went through it. Rows of the same shape
that take the same way end up in the same places.
"""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import numpy as np

from foldaway.federated.device import running
from foldaway.federated.device.checked import checked_row
from foldaway.federated.device.kept import Kept
from foldaway.federated.messages import Moments, new_number, packed
from foldaway.numerics.block import Floats
from foldaway.plan import Plan

# More rows than this go through in pieces: further ones end up in the same places.
_ENOUGH = 1_000


def overwrite(plan: Plan, records: int) -> None:
    """Check, fold and score as many made-up records as there were real ones, and let go of all garbage.

    Args:
        plan: The plan of the real records, without a unit.
        records: How many there were.

    Example:
        >>> overwrite(Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="scores"), 3)
    """
    chance = np.random.default_rng()
    count = min(max(records, 1), _ENOUGH)
    plain = msgspec.structs.replace(plan, unit=None, complete_units=False)
    rows = [_numbers(plain, chance) for _ in range(count)]
    if plan.mode == "scores":
        _score(plain, [packed(row) for row in rows])
    else:
        kept = Kept.new(plain)
        for row in rows:
            kept.sums = running.taken_in(plain, kept, row)
    gc.collect()  # also empties Python's own list of freed floats, which keep their values


def _numbers(plan: Plan, chance: np.random.Generator) -> Floats:
    record: dict[str, Any] = {plan.arm: plan.control}
    for name in (*plan.covariates, *plan.outcomes):
        levels = plan.levels.get(name)
        record[name] = float(chance.standard_normal()) if levels is None else str(chance.choice(list(levels)))
    if plan.weight is not None:
        record[plan.weight] = float(chance.uniform(0.5, 1.5))
    return checked_row(plan, record)


def _score(plan: Plan, rows: list[bytes]) -> None:
    from foldaway.federated.coordinator.share import Published, Share

    share = Share(plan)
    factors: list[Moments] = []
    for arm in plan.arms:
        factors.append(running.moments(new_number(), arm, rows, first=True))
    share.fold(factors, [factor.triangle(len(plan.columns)) for factor in factors])
    published = Published.of(share.trial).message("replying", 0.0)
    running.scores(plan, published, new_number(), plan.control, rows)
