"""A ledger for each trial: what happened, signed. Trials that were open before begin theirs with the next entry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make its table."""
    op.create_table(
        "foldaway_ledger",
        sa.Column("trial", sa.Text, sa.ForeignKey("foldaway_trials.name"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("line", sa.Text, nullable=False),
    )
