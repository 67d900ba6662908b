"""The two databases, opened so that what was acknowledged is on the disk and what was deleted is not."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa

from foldaway.errors import StoreError, Unavailable, instead_of, not_installed
from foldaway.keeping.disk import open_sqlite

# Seconds to wait for another process or server before saying that the database is locked.
PATIENCE = 10.0

_PRAGMAS = (
    "journal_mode = TRUNCATE",  # the old pages in the journal go when the transaction ends
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",  # VACUUM would otherwise copy the database to a temporary folder
    "foreign_keys = ON",
    "trusted_schema = OFF",
)

_POSTGRES = {
    "application_name": "foldaway",
    "connect_timeout": "5",
    # A database host that vanishes is noticed within half a minute, not after two hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}

# A server that stands still in a transaction must not stop the others; a durable answer must be one, whatever the
# database's default.
_SESSION = """
SELECT set_config('lock_timeout', '10s', false),
       set_config('statement_timeout', '30s', false),
       set_config('idle_in_transaction_session_timeout', '30s', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                  ELSE current_setting('synchronous_commit') END, false)
"""


def sqlite_engine(file: Path) -> sa.Engine:
    """An engine for a SQLite file, which is made, for its owner alone, if it is not there."""
    with instead_of(OSError, lambda error: Unavailable(f"the database {file} cannot be opened: {error.strerror}.")):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(handle, 0o600)
        os.close(handle)
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: open_sqlite(file, _PRAGMAS, PATIENCE),
        poolclass=sa.QueuePool,
        pool_timeout=PATIENCE,
        hide_parameters=True,
    )
    sa.event.listen(engine, "connect", partial(_remember, file))
    sa.event.listen(engine, "checkout", partial(_require_same, file))
    sa.event.listen(engine, "begin", _begin)
    return engine


def _remember(file: Path, _: sqlite3.Connection, entry: Any) -> None:
    entry.info["file"] = _identity(file)


def _require_same(file: Path, _: sqlite3.Connection, entry: Any, __: object) -> None:
    """A connection that is kept would go on writing to a file that was moved or replaced: then open another."""
    if entry.info["file"] != _identity(file):
        raise sa.exc.DisconnectionError


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _begin(connection: sa.Connection) -> None:
    """Begin by hand: the driver would only lock at the first write, when it may be too late to do so."""
    how = connection.get_execution_options().get("begin", "DEFERRED")
    if how is not None:
        connection.exec_driver_sql(f"BEGIN {how}")


def writing(engine: sa.Engine) -> sa.Engine:
    """The engine for transactions that write; SQLite locks them from their beginning."""
    return engine.execution_options(begin="IMMEDIATE")


def vacuum(engine: sa.Engine, table: sa.Table) -> None:
    """Write a table anew without what was deleted from it; SQLite does so with the whole file."""
    command = f"VACUUM FULL {table.name}" if engine.dialect.name == "postgresql" else "VACUUM"
    with engine.execution_options(begin=None, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(command)


def postgres_engine(address: str, password: str | None = None) -> sa.Engine:
    """An engine for a PostgreSQL database, with a password that is not in its address, if there is one."""
    url = _url(address)
    options = {name: value for name, value in _POSTGRES.items() if name not in url.query}
    with instead_of(ImportError, StoreError(not_installed("PostgreSQL's driver", "serve"))):
        engine = sa.create_engine(
            # PostgreSQL's own form of an address writes a socket's folder as %2Frun%2Fpostgresql.
            url.set(drivername="postgresql+psycopg", host=url.host and unquote(url.host), password=password),
            connect_args=options,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_timeout=PATIENCE,
            hide_parameters=True,
        )
    sa.event.listen(engine, "connect", _set_session)
    return engine


def place_of(address: str) -> str:
    """A database's address without who asks, and so without a password."""
    url = _url(address)
    port = "" if url.port is None else f":{url.port}"
    return f"postgresql://{url.host or ''}{port}/{url.database or url.username or ''}"


def without_password(address: str) -> str:
    """A database's address as it may be printed, and given again.

    Example:
        >>> without_password("postgresql://me:secret@db/trials?sslmode=require&password=secret")
        'postgresql://me@db/trials?sslmode=require'
    """
    url = _url(address).difference_update_query(["password"])
    return url._replace(password=None).render_as_string()


def _url(address: str) -> sa.URL:
    try:
        url = sa.make_url(address)
        backend = url.get_backend_name()
    except (sa.exc.ArgumentError, ValueError):
        backend = ""
    if backend not in ("postgresql", "postgres"):
        # The address may hold a password: no message repeats it.
        raise StoreError("a database's address has the form postgresql://user@host/name.")
    return url


def _set_session(connection: Any, _: object) -> None:
    connection.execute(_SESSION)
    connection.commit()
