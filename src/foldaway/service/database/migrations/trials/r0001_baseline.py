"""The trials' tables, as they were when they were first versioned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table("foldaway_trials_meta", sa.Column("key", sa.Text))
    op.create_table(
        "foldaway_trials",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("final", sa.Text),
        sa.Column("exact_answers", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "foldaway_shards",
        _trial(),
        sa.Column("shard", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("left_out", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary),
    )
    op.create_table(
        "foldaway_sequences",
        _trial(),
        sa.Column("producer", sa.Text, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("token", sa.Text),
    )
    op.create_table(
        "foldaway_numbers",
        _trial(),
        sa.Column("number", sa.LargeBinary, primary_key=True),
        sa.Column("used", sa.Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "foldaway_devices",
        _trial(),
        sa.Column("arm", sa.Text, primary_key=True),
        sa.Column("enrolled", sa.BigInteger, nullable=False),
        sa.Column("reported", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "foldaway_endings",
        _trial(),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("share", sa.Double, nullable=False),
        sa.Column("without_effects", sa.Boolean, nullable=False),
        sa.Column("published", sa.LargeBinary),
    )
    op.create_table(
        "foldaway_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("trial", sa.Text),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
    )
    op.create_table(
        "foldaway_history",
        _trial(),
        sa.Column("records", sa.BigInteger, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("estimates", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.LargeBinary),
        sa.Column("census", sa.LargeBinary),
    )


def _trial() -> sa.Column[str]:
    return sa.Column("trial", sa.Text, sa.ForeignKey("foldaway_trials.name"), primary_key=True)
