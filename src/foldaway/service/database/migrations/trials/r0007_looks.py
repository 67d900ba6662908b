"""The planned looks that were taken of a trial, each once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "foldaway_looks",
        sa.Column("trial", sa.Text, sa.ForeignKey("foldaway_trials.name"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("look", sa.LargeBinary),
    )
