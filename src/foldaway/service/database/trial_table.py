"""The trials' table: looking trials up."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa

from foldaway.errors import TrialExists, UnknownTrial
from foldaway.plan import Plan
from foldaway.service.database.rows import TrialRow
from foldaway.service.database.tables import SHARDS, TRIALS


def read_trial(connection: sa.Connection, name: str, *, lock: Literal["share", "update"] | None = None) -> TrialRow:
    """A trial by its name; UnknownTrial if there is none."""
    found = find_trial(connection, name, lock=lock)
    if found is None:
        raise UnknownTrial("there is no trial of this name; the list of trials has them all.")
    return found


def find_trial(
    connection: sa.Connection, name: str, *, lock: Literal["share", "update"] | None = None
) -> TrialRow | None:
    """A trial by its name, if there is one; locked until the transaction ends, shared or to be changed."""
    if not name.isprintable():  # no plan has such a name, and not every database takes one in a question
        return None
    query = sa.select(TRIALS).where(TRIALS.c.name == name)
    if lock is not None:
        query = query.with_for_update(read=lock == "share")
    found = connection.execute(query).one_or_none()
    return None if found is None else TrialRow(**found._mapping)


def same_trial(found: TrialRow, plan: Plan) -> TrialRow:
    """The trial that was found, if it is of this plan; TrialExists if not."""
    if found.fingerprint != plan.fingerprint:
        raise TrialExists(
            f"there is a trial {plan.name!r} with another plan; a changed plan is another trial: rename it."
        )
    return found


def read_versions(connection: sa.Connection, name: str) -> dict[str, int]:
    """The version of every shard that was ever written."""
    query = sa.select(SHARDS.c.shard, SHARDS.c.version).where(SHARDS.c.trial == name, SHARDS.c.version > 0)
    return {row.shard: row.version for row in connection.execute(query)}
