"""What a query selects, for a trial or for coefficients: as sums, where the database can make them, or row by row."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from foldaway.calibrating import Calibration
from foldaway.engines.sql.spoken import answer_to, not_spoken
from foldaway.errors import SourceError, StreamedWarning, instead_of
from foldaway.plan import Plan
from foldaway.sources.query import batches_of, require_connection, stream_query
from foldaway.trial import Trial


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
    require_connection(connection)
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
    if why := not_spoken(connection, parameters):
        return why
    from foldaway.engines.sql.statement import not_in_sql

    return not_in_sql(plan)


def _summed(connection: Any, query: str, trial: Trial, parameters: Any) -> Any:
    """The answer to the statement that sums what the query selects."""
    from foldaway.engines.sql.statement import statement

    def written(dialect: str, place: str) -> str:
        return statement(trial.plan, query, dialect, place)

    unlisted = ", ".join(trial.plan.unlisted_characteristics)
    hint = f" A column of `baseline` without `levels` is summed as numbers ({unlisted}): list the levels of text."
    with instead_of(SourceError, lambda error: SourceError(f"{error}{hint}") if unlisted else None):
        return answer_to(connection, written, parameters, trial.secret.for_warehouse())


def calibrated(plan: Plan, connection: Any, query: str, parameters: Any = None) -> Plan:
    """The plan with coefficients from what a query selects: see `Plan.calibrated`."""
    require_connection(connection)
    calibration = Calibration(plan)
    if not_spoken(connection, parameters):
        for batch, _ in batches_of(connection, query, parameters, tuple(calibration.columns)):
            calibration.fold(batch)
        return calibration.plan()
    from foldaway.engines.sql.products import products

    def written(dialect: str, _: str) -> str:
        return products(calibration.bare, query, dialect)

    calibration.fold_products(answer_to(connection, written, parameters))
    return calibration.plan()
