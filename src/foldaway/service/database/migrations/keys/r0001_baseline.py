"""The keys' tables, as they were when they were first versioned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table("foldaway_keys_meta", sa.Column("key", sa.Text))
    op.create_table(
        "foldaway_keys",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
