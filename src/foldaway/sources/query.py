"""The answer of a database folded into a trial, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from foldaway.connection import library_of
from foldaway.errors import SourceError, instead_of
from foldaway.sources.formats.chunk import ROWS, require_columns, wanted_by
from foldaway.trial import Trial

# How an answer is had as Arrow batches: DuckDB's names, new and old, and ADBC's.
_READERS = ("to_arrow_reader", "fetch_record_batch", "fetch_arrow_reader")

# What databases raise before they have read a record, so that their words can only quote the query.
_ABOUT_THE_QUERY = ("ParserException", "BinderException", "CatalogException")
_CLICKHOUSE = ("(UNKNOWN_IDENTIFIER)", "(UNKNOWN_TABLE)", "(SYNTAX_ERROR)")

_NAME_ALONE = re.compile(r"[^\s();]+")

# PostgreSQL casts no boolean to a number.
_BOOLEAN = "cannot cast type boolean"

# As for `select *, converted::int as converted`.
_TWICE = re.compile(r'column reference "([^"]+)" is ambiguous')

_NOTHING = "the query selects nothing; give one that does."

Columns = dict[str, Any]


def stream_query(
    trial: Trial, connection: Any, query: str, parameters: Any, progress: Callable[[int], None] | None
) -> None:
    """Fold what a query selects into a trial, in bounded memory: see `fold_query`."""
    wanted, records = wanted_by(trial.plan).names, 0
    with closing(batches_of(connection, query, parameters, wanted, whole=trial.plan.whole_units)) as batches:
        for batch, size in batches:
            trial.fold(batch)
            records += size
            if progress is not None:
                progress(records)


def answer_of(connection: Any, statement: str, parameters: Any) -> Any:
    """The whole answer to a statement."""
    library = library_of(connection)
    with _in_our_words():
        if library == "pyspark":
            return connection.sql(statement, args=parameters or {}).toArrow()
        if library == "duckdb":  # see below
            return connection.sql(statement, params=parameters).to_arrow_table()
        if library == "chdb":
            return connection.query(statement, "ArrowTable", params=parameters or {})
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement) if parameters is None else cursor.execute(statement, parameters)
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def batches_of(
    connection: Any, query: str, parameters: Any, wanted: tuple[str, ...], *, whole: bool = False
) -> Generator[tuple[pa.Table | Columns, int], None, None]:
    """The wanted columns of what a query selects, or of a table, batch by batch, each with its number of records."""
    if _NAME_ALONE.fullmatch(query.strip()):
        query = f"SELECT * FROM {query}"
    if library_of(connection) == "duckdb":
        # Not through a cursor: that would be a connection of its own, and would hold the whole answer.
        with _in_our_words():
            answer = connection.sql(query, params=parameters)
            reader = _reader(answer, ROWS)
        yield from _read(reader, wanted, whole)
        return
    named = library_of(connection) == "psycopg"  # without a name, its cursor would fetch the whole answer at once
    with _in_our_words():
        cursor = connection.cursor(name="foldaway") if named else connection.cursor()
    with closing(cursor):
        with _in_our_words():
            cursor.execute(query) if parameters is None else cursor.execute(query, parameters)
            reader = _reader(cursor)
        yield from _fetched(cursor, wanted, whole) if reader is None else _read(reader, wanted, whole)


def _reader(answer: Any, *rows: int) -> Any:
    """The answer as Arrow batches, of so many rows where that can be told; None if there is no way to have it so."""
    read = next((getattr(answer, name) for name in _READERS if hasattr(answer, name)), None)
    return None if read is None else read(*rows)


def require_connection(connection: Any) -> None:
    """Refuse what is no connection.

    Raises:
        SourceError: It is none.
    """
    if not any(hasattr(connection, name) for name in ("cursor", "sql", "query")):
        raise SourceError(
            "`connection` must be an open connection, such as duckdb.connect(…) or psycopg.connect(…). Addresses are "
            "for the command line: `foldaway run --database`."
        )


def _read(reader: Any, wanted: tuple[str, ...], whole: bool) -> Iterator[tuple[pa.Table, int]]:
    if reader is None:
        raise SourceError(_NOTHING)
    batches = pa.RecordBatchReader.from_stream(reader)
    require_columns(wanted, batches.schema.names)
    while True:
        held: list[pa.RecordBatch] = []
        rows = 0
        while whole or rows < ROWS:
            with _in_our_words():
                batch = next(batches, None)
            if batch is None:
                break
            held.append(batch.select(list(wanted)))
            rows += batch.num_rows
        if not rows:
            return
        yield pa.Table.from_batches(held), rows


def _fetched(cursor: Any, wanted: tuple[str, ...], whole: bool) -> Iterator[tuple[Columns, int]]:
    if cursor.description is None:
        raise SourceError(_NOTHING)
    names = [column[0] for column in cursor.description]
    require_columns(wanted, names)
    places = {name: names.index(name) for name in wanted}
    while True:
        with _in_our_words():
            rows = cursor.fetchall() if whole else cursor.fetchmany(ROWS)
        if not rows:
            return
        yield {name: [row[place] for row in rows] for name, place in places.items()}, len(rows)


def _in_our_words() -> instead_of:
    """Whatever goes wrong in the database becomes a `SourceError`: databases quote the values they stumble over."""
    return instead_of(Exception, _source_error)


def _source_error(error: Exception) -> SourceError:
    kind = type(error).__name__
    # SQL's standard: class 42 is for faults in the query itself. SQLite has a single kind for what it does not find.
    about_the_query = kind in _ABOUT_THE_QUERY or str(getattr(error, "sqlstate", "")).startswith("42")
    about_the_query = about_the_query or (kind == "OperationalError" and str(error).startswith("no such "))
    about_the_query = about_the_query or str(error).rstrip().endswith(_CLICKHOUSE) or " SQLSTATE: 42" in str(error)
    # ClickHouse and Spark then quote the query with its parameters.
    said = str(error).partition(" In scope ")[0].partition(" SQLSTATE: ")[0]
    words = f"{kind}: {said}" if about_the_query else kind
    if about_the_query and _BOOLEAN in said:
        return SourceError(
            f"the database does not read its booleans as numbers ({words}); nothing was folded. Let the query cast "
            "them, as in converted::int AS converted."
        )
    if about_the_query and (twice := _TWICE.search(said)):
        return SourceError(
            f"the database could not run the query ({words}); nothing was folded. If the query gives {twice[1]} twice, "
            "let it name its columns instead of `*`."
        )
    return SourceError(
        f"the database could not run the query ({words}); nothing was folded."
        + ("" if about_the_query else " Its own words may quote records: to see them, run the query by itself.")
    )
