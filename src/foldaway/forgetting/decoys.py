"""Made-up records, folded after real ones: they overwrite what these have left where nobody can free it.

The linear algebra library keeps its working memory for good, with the last rows that went through it: outcomes and
covariates in the tally's frame, from which anyone who has the tally can tell them as they were. Rows of the same
shape that take the same way end up in the same places.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from foldaway.numerics.threads import cores
from foldaway.plan import Plan
from foldaway.trial import Trial

# A batch is folded block by block, and so many records make all cores work: more would only overwrite decoys.
_ENOUGH_PER_CORE = 40_000
# Blocks of fewer rows than this for each column are factored in another way, with other working memory.
_TALL = 16


class Decoys:
    """The decoys that are due: for each plan, as large as the largest batch since the last one.

    Example:
        >>> decoys = Decoys()
        >>> decoys.add(Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]), 100)
        >>> decoys.fold()
    """

    def __init__(self) -> None:
        self._due: dict[int, tuple[Plan, int]] = {}  # by the plan's place in memory: to compare two takes long

    def add(self, plan: Plan, records: int) -> None:
        """Note that so many records were folded, or tried."""
        self._due[id(plan)] = plan, max(records, self._due.get(id(plan), (plan, 0))[1])

    def fold(self) -> None:
        """Fold what is due, in the thread that folded the real ones."""
        due, self._due = self._due, {}
        for plan, records in due.values():
            fold_decoy(plan, records)


def fold_decoy(plan: Plan, records: int) -> None:
    """Fold as many made-up records under a plan as were folded before, or as many as make a difference.

    Args:
        plan: The plan of the real records.
        records: The size of the largest batch since the last decoy.

    Example:
        >>> fold_decoy(Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]), 100)
    """
    if records:
        # The bootstrap's working memory is freed like any other, and it would take most of the time.
        plain = msgspec.structs.replace(plan, bootstrap=None, beyond="clip")
        key = bytes(16) if plain.keyed else None
        for enough in (_ENOUGH_PER_CORE * cores(), _TALL * len(plan.columns) - 1):
            Trial(plain, key=key).fold(_decoy(plain, min(records, enough)))


def _decoy(plan: Plan, n: int) -> pa.Table:
    chance = np.random.default_rng()
    # All in one arm: however the real ones were spread, none of their blocks was larger.
    columns = {plan.arm: _named([plan.control], n)}
    strata = () if plan.strata is None else (plan.strata.column,)
    for name in (*plan.covariates, *plan.segments, *strata, *plan.measured):
        levels = plan.levels_of(name)
        columns[name] = pa.array(chance.standard_normal(n)) if levels is None else _named(list(levels), n)
    if plan.weight is not None:
        columns[plan.weight] = pa.array(chance.random(n) + 0.5)
    for who in (plan.unit, plan.cluster):
        # Half of them are one unit's, and so in one group: however large a group of the real ones was, this is larger.
        alone = who == plan.unit and plan.one_each
        if who is not None:
            columns[who] = pa.array(np.arange(n) if alone else np.maximum(np.arange(n) - n // 2, 0))
    return pa.table(columns)


def _named(names: list[str], n: int) -> pa.Array:
    """Each name in turn."""
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(n) % len(names)), pa.array(names))
