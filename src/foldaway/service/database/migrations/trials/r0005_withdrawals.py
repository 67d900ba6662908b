"""What a number's report was, where it is counted, and whether it was taken out again; and how many of an arm were."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; reports of before cannot be taken out."""
    op.add_column("foldaway_numbers", sa.Column("report", sa.LargeBinary))
    op.add_column("foldaway_numbers", sa.Column("shard", sa.Text))
    op.add_column("foldaway_numbers", sa.Column("out", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("foldaway_devices", sa.Column("withdrawn", sa.BigInteger, nullable=False, server_default="0"))
