"""The effects of what is durable, computed once for each state, however many people ask."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from foldaway.effects import Effects
from foldaway.keeping.cohort import require_enough
from foldaway.plan import Plan
from foldaway.service.collecting.collector import merged, quiet_effects
from foldaway.service.database.shard_table import ShardRow

Mark = tuple[tuple[str, int, bytes], ...]


class Answers:
    """The last answer for each trial, until another state is durable. Effects are a few kilobytes."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Mark, int, Effects]] = {}

    def of(self, plan: Plan, shards: Sequence[ShardRow]) -> tuple[int, Effects]:
        """The records of all servers together, and their effects.

        Raises:
            TooEarly: An arm has too few records.
        """
        mark = tuple((shard.shard, shard.version, blake2b(shard.state or b"").digest()) for shard in shards)
        if plan.name not in self._last or self._last[plan.name][0] != mark:
            trial = merged(plan, shards)
            require_enough(plan.privacy, trial.counts)
            self._last[plan.name] = mark, trial.n, quiet_effects(trial)
        return self._last[plan.name][1:]

    def drop(self, name: str) -> None:
        """Let go of a trial's answer; a closed one's is in the database."""
        self._last.pop(name, None)
