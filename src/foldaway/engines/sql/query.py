"""What a query selects folded into a trial: as sums, where the database can make them, or else row by row."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from foldaway.errors import SourceError, StreamedWarning
from foldaway.plan import Plan
from foldaway.sources.query import answer_of, library_of, stream_query
from foldaway.trial import Trial

# Whose connections speak which dialect, and how they write the one parameter of a statement: by position, or by name.
_NAME = ":group_key"
_SPOKEN = {
    "duckdb": ("duckdb", "?"),
    "_duckdb": ("duckdb", "?"),
    "psycopg": ("postgres", "%s"),
    "psycopg2": ("postgres", "%s"),
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
_BY_NAME = {"duckdb": "$group_key", "_duckdb": "$group_key", "chdb": "{group_key:String}"}


def fold_query(
    connection: Any,
    query: str,
    plan: Plan,
    *,
    label: str | None = None,
    parameters: Any = None,
    key: bytes | None = None,
    into: Trial | None = None,
    progress: Callable[[int], None] | None = None,
) -> Trial:
    """Fold what a query selects: as sums by arm and group, or in bounded memory row by row.

    With ``hash = "sha256"`` in the plan, and without moments, the database sums its rows, and none of them leaves it.
    Otherwise they come as they are: let the query select the plan's columns and no others. Then, where the plan
    promises that a unit's records come together, the whole answer is one batch, and in memory.

    Args:
        connection: A connection by Python's DB-API (DuckDB, psycopg, sqlite3, …), by ADBC, or a Spark session. From
            those that can, rows come as Arrow; from PostgreSQL through a cursor on the server.
        query: The query, or the name of a table.
        plan: The plan.
        label: What the records are called, such as their day: what has a label is folded once. Sums need one.
        parameters: Values for the query's placeholders, as the connection takes them.
        key: The trial's key; if left out, that of this machine's user.
        into: A trial to go on with; a new one if left out. It is left as it was if anything is refused.
        progress: Called after each batch with the number of records so far.

    Returns:
        The trial with all records of the answer in it.

    Raises:
        SourceError: The label was folded before; or the database refuses the query, or breaks off.
        RecordError: A column is missing, or records were refused.

    Example:
        >>> import sqlite3
        >>> halves = {"a": 0.5, "b": 0.5}
        >>> plan = Plan(name="demo", arm="g", arms=halves, outcomes=["y"], unit="who", hash="sha256")
        >>> with sqlite3.connect(":memory:") as connection:
        ...     _ = connection.execute("create table visits (who text, g text, y real)")
        ...     _ = connection.execute("insert into visits values ('x', 'a', 1), ('y', 'b', 3)")
        ...     fold_query(connection, "select * from visits", plan, label="2026-03-01")
        Trial: demo | n=2 | a=1, b=1
    """
    if into is not None and key is not None:
        raise SourceError("a trial to go on with brings its own key; give `into` or `key`, not both.")
    trial = Trial(plan, key=key) if into is None else into.copy()
    if label is not None:
        trial.require_new(label)
    if why := _why_streamed(connection, plan, parameters):
        if label is not None:
            warnings.warn(f"the rows came one by one, instead of their sums: {why}.", StreamedWarning, stacklevel=2)
        stream_query(trial, connection, query, parameters, progress)
        trial.labels |= set() if label is None else {label}
        return trial
    if label is None:
        raise SourceError('records that are summed where they are need a label, so that none counts twice: label="…".')
    trial.fold_sums(_summed(connection, query, trial, parameters), label=label)
    if progress is not None:
        progress(trial.n)
    return trial


def _why_streamed(connection: Any, plan: Plan, parameters: Any) -> str:
    """Why the database does not sum the records; empty if it does."""
    if find_spec("sqlglot") is None:
        return "sqlglot is missing: pip install 'foldaway[sql]'"
    from foldaway.engines.sql.statement import not_in_sql

    if why := not_in_sql(plan):
        return why
    library = library_of(connection)
    if library not in _SPOKEN:
        return f"the dialect of {library} is not known; `plan.sql` writes the statement for a dialect that you name"
    if parameters is not None and _SPOKEN[library][1] == "%s":
        return f"{library} writes parameters in a way that cannot be read as SQL; put the values into the query"
    return ""


def _summed(connection: Any, query: str, trial: Trial, parameters: Any) -> Any:
    """The answer to the statement that sums what the query selects."""
    from foldaway.engines.sql.dialects import KEY_HERE
    from foldaway.engines.sql.statement import statement

    library, group_key = library_of(connection), trial.secret.for_warehouse()
    dialect, place = _SPOKEN[library]
    bound: Any = [group_key, *(parameters or ())]
    if isinstance(parameters, Mapping) or len(place) > 2:
        place, bound = _BY_NAME.get(library, _NAME), {**(parameters or {}), "group_key": group_key}
    text = statement(trial.plan, query, dialect, KEY_HERE)
    text = (text.replace("%", "%%") if place == "%s" else text).replace(KEY_HERE, place)
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
