"""The key that the store signs ledgers with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make its table."""
    op.create_table(
        "foldaway_signing",
        sa.Column("purpose", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
