"""What the store gives back: a trial, and a server's share of its tallies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec


class TrialRow(msgspec.Struct, frozen=True):
    """A registered trial.

    Attributes:
        name: The plan's name.
        plan: The plan in canonical form.
        fingerprint: The plan's fingerprint.
        status: ``"open"`` for records, or ``"closed"``.
        created: When, in seconds since 1970.
        closed: When, if it is.
        final: What was found, as JSON, if it is closed.
        new: Whether the call that gave this row has registered the trial.
    """

    name: str
    plan: str
    fingerprint: str
    status: Literal["open", "closed"]
    created: float
    closed: float | None = None
    final: str | None = None
    new: bool = False


class ShardRow(msgspec.Struct, frozen=True):
    """The tallies that one server has made durable.

    Attributes:
        shard: The server's name for its share.
        version: How many times it was written.
        n: Records in the state.
        left_out: Records that were given up, since no cohort came together for them.
        state: The state, opened; none before the first commit.
    """

    shard: str
    version: int = 0
    n: int = 0
    left_out: int = 0
    state: bytes | None = None


def left_out(shards: Sequence[ShardRow]) -> int:
    """Records that all servers have given up."""
    return sum(shard.left_out for shard in shards)


def versions(shards: Sequence[ShardRow]) -> dict[str, int]:
    """The version of every shard that was ever written."""
    return {shard.shard: shard.version for shard in shards if shard.version}
