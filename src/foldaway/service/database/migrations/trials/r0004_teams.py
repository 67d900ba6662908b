"""Which team a trial belongs to; and of a token its team, its label, its last day and the day of its last use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns; trials and tokens of before have none of these."""
    op.add_column("foldaway_trials", sa.Column("team", sa.Text))
    for name in ("team", "label", "used"):
        op.add_column("foldaway_tokens", sa.Column(name, sa.Text))
    op.add_column("foldaway_tokens", sa.Column("expires", sa.Double))
