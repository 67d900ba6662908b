"""Which connection speaks which dialect, and how a statement is asked through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from foldaway.connection import library_of
from foldaway.sources.query import answer_of

# Whose connections speak which dialect, and how they write the one parameter of a statement: by position, or by name.
_NAME, _FORMATTED = ":group_key", "%(group_key)s"
_SPOKEN = {
    "duckdb": ("duckdb", "?"),
    "psycopg": ("postgres", _FORMATTED),
    "psycopg2": ("postgres", _FORMATTED),
    "sqlite3": ("sqlite", "?"),
    "pymysql": ("mysql", "%s"),
    "MySQLdb": ("mysql", "%s"),
    "mysql": ("mysql", "%s"),
    "mariadb": ("mysql", "?"),
    "chdb": ("clickhouse", "{group_key:String}"),
    "pyspark": ("spark", _NAME),
    "snowflake": ("snowflake", "%s"),
    "google": ("bigquery", "%s"),
    "redshift_connector": ("redshift", "%s"),
    "databricks": ("databricks", _NAME),
    "trino": ("trino", "?"),
}
_BY_NAME = {"duckdb": "$group_key"}


def not_spoken(connection: Any, parameters: Any) -> str:
    """Why no statement can be written for this connection; empty if one can."""
    if find_spec("sqlglot") is None:
        return "sqlglot is missing: pip install 'foldaway[sql]'"
    library = library_of(connection)
    if library not in _SPOKEN:
        return f"the dialect of {library} is not known; `plan.sql` writes the statement for a dialect that you name"
    if parameters is not None and _SPOKEN[library][1].startswith("%"):
        return f"{library} writes parameters in a way that cannot be read as SQL; put the values into the query"
    return ""


def answer_to(
    connection: Any, written: Callable[[str, str], str], parameters: Any, group_key: str | None = None
) -> Any:
    """The answer to a statement.

    Args:
        connection: The connection.
        written: Writes the statement for a dialect, with the given text in the place of the group key.
        parameters: Values for the placeholders of the query in it.
        group_key: The group key, if the statement has a place for it.
    """
    from foldaway.engines.sql.dialects import KEY_HERE

    library = library_of(connection)
    dialect, place = _SPOKEN[library]
    bound: Any = parameters
    if group_key is not None:
        bound = [group_key, *(parameters or ())]
        if isinstance(parameters, Mapping) or len(place) > 2:
            place = place if len(place) > 2 else _BY_NAME.get(library, _NAME)
            bound = {**(parameters or {}), "group_key": group_key}
    text = written(dialect, KEY_HERE)
    text = (text.replace("%", "%%") if bound and place.startswith("%") else text).replace(KEY_HERE, place)
    with _functions(connection, library):
        return answer_of(connection, text, bound)


@contextmanager
def _functions(connection: Any, library: str) -> Iterator[None]:
    """Functions that SQLite lacks, for as long as it needs them."""
    if library != "sqlite3":
        yield
        return
    lent: dict[str, Callable[[Any], Any]] = {
        "foldaway_sha256": lambda text: None if text is None else sha256(text.encode()).hexdigest(),
        "ln": lambda value: None if value is None or value <= 0 else math.log(value),
        "floor": lambda value: None if value is None else math.floor(value),
    }
    for name, function in lent.items():
        connection.create_function(name, 1, function, deterministic=True)
    try:
        yield
    finally:
        connection.create_function("foldaway_sha256", 1, None)
