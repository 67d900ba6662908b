"""A connection to a database, as somebody hands it to us."""

from __future__ import annotations

from typing import Any


def library_of(connection: Any) -> str:
    """The library that a connection is of; where that is written in C, what Python calls it.

    Example:
        >>> import sqlite3
        >>> library_of(sqlite3.connect(":memory:"))
        'sqlite3'
    """
    return type(connection).__module__.partition(".")[0].removeprefix("_")
