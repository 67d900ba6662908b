"""Connections by an address, for the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from foldaway.errors import SourceError, did_you_mean, instead_of


def connected(address: str) -> Any:
    """A connection to the database at an address, such as ``postgresql://user@host/name`` or ``duckdb:///file``.

    Raises:
        SourceError: There is no such kind of database, its library is missing, or it lets nobody in.
    """
    kind, found, _ = address.partition("://")
    if not found or kind not in _KINDS:
        kinds = ", ".join(f"{each}://" for each in _KINDS)
        hint = did_you_mean(kind, _KINDS) if found else "."
        raise SourceError(
            f"the database's address does not begin with any of {kinds}{hint} For others, run the statement of "
            "`foldaway sql` there, and give its answer to --sums."
        )
    library, connect = _KINDS[kind]

    def missing(error: Exception) -> SourceError:
        return SourceError(f"{kind}:// needs the package {library}, which is missing: pip install {library}")

    def closed(error: Exception) -> SourceError:  # whose own words may quote the password
        what = "its address, user and password, and whether it is running"
        if kind in _FILES:
            what = f"that the file exists, and that no other program is writing to it; {kind}:///file is in this folder"
        return SourceError(f"cannot connect to the {kind} database ({type(error).__name__}): check {what}.")

    with instead_of(ModuleNotFoundError, missing), instead_of(Exception, closed):
        return connect(address)


def _postgresql(address: str) -> Any:
    import psycopg

    return psycopg.connect(address)


def _mysql(address: str) -> Any:
    import pymysql

    parts = urlsplit(address)
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=None if parts.username is None else unquote(parts.username),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.removeprefix("/")) or None,
    )


def _file(address: str) -> str:
    """The file of an address: `duckdb:///shop.db` is beside us, `duckdb:////data/shop.db` is where it says."""
    host, _, path = address.partition("://")[2].partition("/")
    if host or not path:
        raise ValueError
    return unquote(path)


def _duckdb(address: str) -> Any:
    import duckdb

    return duckdb.connect(_file(address), read_only=True)


def _sqlite(address: str) -> Any:
    import sqlite3
    from pathlib import Path

    return sqlite3.connect(f"{Path(_file(address)).absolute().as_uri()}?mode=ro", uri=True)


_KINDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "postgresql": ("psycopg", _postgresql),
    "postgres": ("psycopg", _postgresql),
    "mysql": ("pymysql", _mysql),
    "mariadb": ("pymysql", _mysql),
    "duckdb": ("duckdb", _duckdb),
    "sqlite": ("sqlite3", _sqlite),
}
_FILES = ("duckdb", "sqlite")
