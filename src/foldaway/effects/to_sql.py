"""Effects as lines of a table in a database: one per row, with the trial, the plan's fingerprint and the time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from foldaway.connection import library_of
from foldaway.effects.effect import Effect
from foldaway.errors import SourceError, instead_of

_TYPES = {"str": "text", "bool": "boolean", "int": "bigint", "float": "double precision"}
_ABOUT = {"trial": "text", "fingerprint": "text", "written_at": "timestamp"}
_PLACES = {"format": "%s", "pyformat": "%s", "qmark": "?", "numeric": "?"}
# Whose identifiers stand between backticks; everybody else's between double quotes.
_BACKTICKS = ("pymysql", "MySQLdb", "mysql", "mariadb", "databricks")


def append_to(connection: Any, table: str, rows: Iterable[Effect], trial: str, fingerprint: str) -> None:
    """Append the rows to a table, which is made if it does not exist: see `Findings.to_sql`."""
    library = library_of(connection)
    place = _PLACES.get(getattr(sys.modules.get(library), "paramstyle", ""))
    if place is None or not hasattr(connection, "cursor"):
        raise SourceError(
            f"{library} has no connections by Python's DB-API; write effects.to_pandas() or effects.to_arrow() instead."
        )
    columns = _ABOUT | {name: _TYPES[kind.split(" ")[0]] for name, kind in Effect.__annotations__.items()}
    quote = partial(_quoted, mark="`" if library in _BACKTICKS else '"')
    target = ".".join(map(quote, table.split(".")))
    declared = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    about = [trial, fingerprint, datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")]
    lines = [[*about, *map(_told, msgspec.structs.astuple(row))] for row in rows]
    places = ", ".join([place] * len(columns))
    with instead_of(Exception, partial(_unwritten, table)), closing(connection.cursor()) as cursor:
        cursor.execute(f"create table if not exists {target} ({declared})")
        cursor.executemany(f"insert into {target} ({', '.join(map(quote, columns))}) values ({places})", lines)
        connection.commit()


def _quoted(name: str, mark: str) -> str:
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _told(value: Any) -> Any:
    """A value as databases take it: MySQL has no infinity, and degrees of freedom are null in JSON as well."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unwritten(table: str, error: Exception) -> SourceError:
    return SourceError(
        f"the effects could not be appended to {table} ({type(error).__name__}). If a table of this name has other "
        "columns, name another one; otherwise see whether you may create tables and write to them."
    )
