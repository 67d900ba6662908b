"""The unused invitations of trials that take devices by invitation alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "foldaway_invitations",
        sa.Column("trial", sa.Text, sa.ForeignKey("foldaway_trials.name"), primary_key=True),
        sa.Column("invitation", sa.LargeBinary, primary_key=True),
        sqlite_with_rowid=False,
    )
