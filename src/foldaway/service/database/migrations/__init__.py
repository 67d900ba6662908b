"""The form of the tables, step by step: each change of it is a revision, a file in the folder of its part.

A new revision names the one before it in `down_revision`, says in `upgrade` what changes, and has no way back: a
restored backup is one. `tables.py` has the form that all revisions together lead to; a test compares the two. Whoever
opens a store upgrades it, in one transaction for each part, one server at a time.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import sqlalchemy as sa
from alembic.command import upgrade
from alembic.config import Config
from alembic.util import CommandError

from foldaway.errors import StoreError, instead_of
from foldaway.service.database.tables import META, Part

REVISIONS = Path(__file__).parent

# Alembic keeps the migration that is under way in a global variable.
_ONE_AT_A_TIME = Lock()

# About any number tells foldaway's lock from those of others in the same database.
_LOCK = 0x666F6C64


def migrate(connection: sa.Connection, part: Part, revision: str = "head") -> None:
    """Bring the tables of a part to a revision, from none at all or from any earlier one, in a transaction that writes.

    Raises:
        StoreError: The tables have a form that this foldaway does not know.
    """
    if connection.dialect.name == "postgresql":
        # A table may be large, and another server may be at it: neither is a reason to give up.
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    version = f"foldaway_{part}_version"
    tables = sa.inspect(connection)
    if tables.has_table(META[part].name) and not tables.has_table(version):
        raise StoreError("the database was made before its tables had versions; start with a new one.")
    config = Config(attributes={"connection": connection, "version_table": version})
    config.set_main_option("script_location", str(REVISIONS).replace("%", "%%"))
    config.set_main_option("version_locations", str(REVISIONS / part).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    unknown = "the database was upgraded by a later foldaway than this one; use that one, or restore a backup."
    with _ONE_AT_A_TIME, instead_of(CommandError, StoreError(unknown)):
        upgrade(config, revision)
