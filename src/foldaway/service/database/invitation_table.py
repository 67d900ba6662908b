"""Invitations to a federated trial: single-use tokens with which an app's own server lets its devices in.

What is stored is a hash of each that is unused, in the order of the hashes. It is deleted in the transaction in which a
device enrols with it, and nothing says which device that was.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

import sqlalchemy as sa

from foldaway.errors import IngestError, TrialEnded
from foldaway.plan import Plan
from foldaway.service.database.seals import SealedTable
from foldaway.service.database.tables import INVITATIONS, insert_new
from foldaway.service.database.trial_table import read_trial

MOST = 10_000
"""The most that are made at a time."""


class InvitationTable(SealedTable):
    """The invitations of a database."""

    def invite(self, trial: str, count: int) -> list[str]:
        """New invitations, which are told this once.

        Raises:
            TrialEnded: The trial takes no more devices.
            IngestError: Its plan asks for no invitations.
        """
        with self._writing.begin() as connection:
            row = read_trial(connection, trial, lock="share")
            if row.status != "open":
                raise TrialEnded(f"the trial {trial} has ended and takes no more devices.")
            plan = Plan.loads(row.plan)
            if plan.federated is None or not plan.federated.invited:
                raise IngestError(
                    409,
                    f"devices of the trial {trial} need no invitation. A plan with `federated.invited = true` asks "
                    "for one.",
                )
            texts = [secrets.token_urlsafe(24) for _ in range(count)]
            hashes = sorted(hashed_invitation(plan, text) for text in texts)
            insert_new(connection, INVITATIONS, [{"trial": trial, "invitation": each} for each in hashes])
        return texts


def hashed_invitation(plan: Plan, text: str) -> bytes:
    """What is stored of an invitation."""
    key = bytes.fromhex(plan.fingerprint)
    return blake2b(text.encode(), digest_size=16, key=key, person=b"foldaway-invited").digest()


def spend(connection: sa.Connection, trial: str, invitation: bytes | None) -> bool:
    """Use an invitation up, within the transaction in which its device enrols; whether it was there."""
    if invitation is None:
        return False
    unused = INVITATIONS.c.trial == trial, INVITATIONS.c.invitation == invitation
    return connection.execute(INVITATIONS.delete().where(*unused)).rowcount == 1


def forget_invitations(connection: sa.Connection, trial: str) -> None:
    """Delete all that are unused, at the end of a trial."""
    connection.execute(INVITATIONS.delete().where(INVITATIONS.c.trial == trial))
