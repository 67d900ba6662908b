"""When the moments of all servers become sums: their coefficients are fixed together, once there are records enough."""

from __future__ import annotations

from collections.abc import Sequence

from foldaway.inference.adjusting import LEAST_PER_COLUMN
from foldaway.inference.fixing import fixed, is_rich, start_of
from foldaway.plan import Plan
from foldaway.service.database.shard_table import ShardRow
from foldaway.trial import Trial

FIXED_AT = 2_000
"""Records of all servers together at which a trial's coefficients are fixed and its moments destroyed."""


def may_be_fixed(plan: Plan, shards: Sequence[ShardRow]) -> bool:
    """Whether there are `FIXED_AT` records, or as many as a plan with very many columns needs."""
    return sum(row.n for row in shards) >= max(FIXED_AT, LEAST_PER_COLUMN * len(plan.regressors))


def fixed_shards(plan: Plan, shards: Sequence[ShardRow]) -> dict[str, bytes]:
    """The states of shards that hold moments, as sums: with the coefficients that others have, or all together give."""
    start = start_of(plan, merged(plan, shards).tallies)
    states = {}
    for row in shards:
        trial = None if row.state is None else Trial.loads(row.state, plan)
        if trial is not None and is_rich(trial.tallies):
            trial.tallies = fixed(plan, trial.tallies, start)
            states[row.shard] = trial.exchanged()
    return states


def merged(plan: Plan, shards: Sequence[ShardRow]) -> Trial:
    """The trial of all servers together, as far as it is durable."""
    whole = Trial(plan)
    for row in shards:
        if row.state is not None:
            whole = whole.merge(Trial.loads(row.state, plan))
    return whole
