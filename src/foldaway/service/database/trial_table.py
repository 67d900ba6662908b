"""The trials' table: a registered trial, and how it is looked up."""

from __future__ import annotations

from typing import Literal

import msgspec
import sqlalchemy as sa

from foldaway.errors import TrialExists, UnknownTrial
from foldaway.plan import Plan
from foldaway.service.database.tables import TRIALS, Lock, by_lock


class TrialRow(msgspec.Struct, frozen=True):
    """A registered trial.

    Attributes:
        plan: The plan in canonical form.
        status: ``"open"`` for records, ``"ended"``, or ``"removed"`` with all that was stored of it but this row: its
            name is not used again, so that it means one trial in every certificate and in every server's memory.
        created: When, in seconds since 1970.
        ended: When, if it is.
        final: The final answer as JSON, if it has ended.
        exact_answers: How often somebody has asked for exact numbers.
        team: The team whose token has registered it, if a team's has.
        new: Whether the call that gave this row has registered the trial.
    """

    name: str
    plan: str
    fingerprint: str
    status: Literal["open", "ended", "removed"]
    created: float
    ended: float | None = None
    final: str | None = None
    exact_answers: int = 0
    team: str | None = None
    new: bool = False

    def require_plan(self, plan: Plan, team: str | None) -> TrialRow:
        """This row, if it is the trial of this plan and, for a team, that team's; TrialExists if it is not."""
        if team is not None and self.team != team:  # the same sentence whatever the other's plan is
            raise TrialExists(
                f"the name {plan.name!r} is taken on this server, by a trial that is not your team's. Choose another, "
                f"such as {f'{team}-{plan.name}'!r}."
            )
        if self.status == "removed":
            raise TrialExists(
                f"a trial {plan.name!r} was removed from this server, and a name is used once: choose another."
            )
        if self.fingerprint != plan.fingerprint:
            raise TrialExists(
                f"there is a trial {plan.name!r} with another plan; a changed plan is another trial: rename it."
            )
        return self


# Made once, not for every call.
_BY_NAME = by_lock(sa.select(TRIALS).where(TRIALS.c.name == sa.bindparam("wanted")))


def find_trial(connection: sa.Connection, name: str, *, lock: Lock = None) -> TrialRow | None:
    """A trial by its name, if there is one; locked until the transaction ends, shared or to be changed."""
    if not name.isprintable():  # no plan has such a name, and not every database takes one in a question
        return None
    row = connection.execute(_BY_NAME[lock], {"wanted": name}).one_or_none()
    return None if row is None else TrialRow(**row._mapping)


def read_trial(connection: sa.Connection, name: str, *, lock: Lock = None) -> TrialRow:
    """A trial by its name; UnknownTrial if there is none."""
    row = find_trial(connection, name, lock=lock)
    if row is None or row.status == "removed":
        raise UnknownTrial("there is no trial with this name; `foldaway trial status` shows all trials.")
    return row
