"""What a device's number was enrolled for, and how many units a site's token may bring and has brought."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; numbers and tokens of before have none of these."""
    op.add_column("foldaway_numbers", sa.Column("arm", sa.LargeBinary))
    op.add_column("foldaway_tokens", sa.Column("units", sa.BigInteger))
    op.add_column("foldaway_tokens", sa.Column("brought", sa.BigInteger, nullable=False, server_default="0"))
