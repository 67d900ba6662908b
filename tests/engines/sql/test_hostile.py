"""Whatever is wrong with a query, its rows or an answer: a sentence, and nothing is folded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import foldaway as fa
from databases import ENGINES, Connect, connector, in_duckdb, in_postgres, in_sqlite
from postgres import Postgres
from sizes import mostly_slow

KEY = bytes(16)
PLAN = fa.Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="who", segments=["c"], hash="sha256")
ROWS = pd.DataFrame(
    {
        "g": ["a", "b"] * 20,
        "who": [f"u{i % 17}" for i in range(40)],
        "y": [float(i) for i in range(40)],
        "c": ["k", "l"] * 20,
    }
)


def in_turn(cases: Iterable[Any]) -> list[Any]:
    """Every case in every engine; each run has each case in one of them, and every engine but Spark."""
    listed = list(cases)
    quick = [(case, ENGINES[at % (len(ENGINES) - 1)]) for at, case in enumerate(listed)]
    return mostly_slow([(case, engine) for case in listed for engine in ENGINES], *quick)


@pytest.fixture(params=mostly_slow(ENGINES, *ENGINES[:-1]))
def connect(request: pytest.FixtureRequest) -> Connect:
    return connector(request.param, request)


def answer_of(plan: fa.Plan = PLAN, rows: pd.DataFrame = ROWS, key: bytes = KEY) -> pa.Table:
    """The answer of DuckDB to the plan's printed statement."""
    with closing(in_duckdb(rows)) as connection:
        group_key = fa.Trial(plan, key=key).secret.for_warehouse()
        return connection.sql(plan.sql("visits", dialect="duckdb"), params={"group_key": group_key}).to_arrow_table()


def test_names_with_quotes_are_names(connect: Connect) -> None:
    arms = {"it's": 0.5, 'a "b" \\ %s': 0.5}
    plan = fa.Plan(
        name="d", arm='the "arm"', arms=arms, outcomes=["it's; -- y", "select"], unit="fa_t0", hash="sha256",
        segments=[{"column": "%c", "levels": ["k'", "l\\"]}],
    )  # fmt: skip
    rows = pd.DataFrame(
        {
            'the "arm"': list(arms) * 20,
            "it's; -- y": ROWS["y"],
            "select": ROWS["y"] % 7,
            "fa_t0": ROWS["who"],
            "%c": ["k'", "k'", "l\\", "l\\"] * 10,
        }
    )
    theirs = fa.Trial(plan, key=KEY)
    theirs.fold(rows)
    with closing(connect(rows)) as connection:
        ours = fa.fold_query(connection, "visits", plan, label="1", key=KEY)
    assert ours.effects()[0].estimate == pytest.approx(theirs.effects()[0].estimate, rel=1e-9)
    assert ours.effects()[0].std_error == pytest.approx(theirs.effects()[0].std_error, rel=1e-9)


ENDS = (";", " ; ", " -- all of them", " /* all */ ;", ";\n-- the end", "\n;;")


@pytest.mark.parametrize(("end", "connect"), in_turn(ENDS), indirect=["connect"])
def test_a_query_may_end_as_it_likes(connect: Callable[[pd.DataFrame], Any], end: str) -> None:
    with closing(connect(ROWS)) as connection:
        assert fa.fold_query(connection, f"select * from visits{end}", PLAN, label="1", key=KEY).n == 40


NONE = ("", ";", "select 1; select 2", "drop table visits", "delete from visits", "select ( from", "copy visits to 'x'")


@pytest.mark.parametrize(("query", "connect"), in_turn(NONE), indirect=["connect"])
def test_what_is_no_query_is_refused(connect: Callable[[pd.DataFrame], Any], query: str) -> None:
    with closing(connect(ROWS)) as connection:
        with pytest.raises(fa.SourceError, match="nothing was folded"):
            fa.fold_query(connection, query, PLAN, label="1", key=KEY)
        assert fa.fold_query(connection, "visits", PLAN, label="1", key=KEY).n == 40


FAULTS: dict[str, tuple[str, Any, str]] = {
    "no unit": ("who", None, "who: 1 null"),
    "no arm": ("g", None, "g: 1 null"),
    "unknown arm": ("g", "c", "g: 1 unknown arm"),
    "capitals": ("g", "A", "g: 1 unknown arm"),
    "blanks": ("g", "a ", "g: 1 unknown arm"),
    "no level": ("c", None, "c: 1 null"),
    "no outcome": ("y", None, "y: 1 null"),
    "infinite": ("y", float("inf"), "y: 1 infinity"),
    "too large": ("y", -1e41, "y: 1 too large"),
}


@pytest.mark.parametrize(("name", "connect"), in_turn(FAULTS), indirect=["connect"])
def test_a_faulty_record_is_refused_or_dropped_as_everywhere(
    name: str, connect: Connect, request: pytest.FixtureRequest
) -> None:
    column, value, words = FAULTS[name]
    if (name, request.node.callspec.params["connect"]) == ("infinite", "mariadb"):
        pytest.skip("MariaDB has no infinity")
    rows = ROWS.astype(object)
    rows.loc[7, column] = value
    rows = rows.astype({"y": float})
    with closing(connect(rows)) as connection:
        with pytest.raises(fa.RecordError, match=words) as caught:
            fa.fold_query(connection, "visits", PLAN, label="1", key=KEY)
        drops = fa.Plan.of({**PLAN.settings(), "drop_limit": 0.2})
        ours = fa.fold_query(connection, "visits", drops, label="1", key=KEY)
    theirs = fa.Trial(drops, key=KEY)
    theirs.fold(rows)
    assert "1 of 40 records is faulty" in str(caught.value)
    assert (ours.n, ours.counts, ours.dropped) == (39, theirs.counts, theirs.dropped)


def test_nan_is_a_fault_where_there_is_one(postgres: Postgres) -> None:
    for connect in (in_duckdb, in_postgres(postgres)):
        with closing(connect(ROWS)) as connection:
            query = "select g, who, c, case when y = 3 then cast('NaN' as double precision) else y end as y from visits"
            with pytest.raises(fa.RecordError, match="y: 1 NaN"):
                fa.fold_query(connection, query, PLAN, label="1", key=KEY)
            allowed = fa.Plan.of({**PLAN.settings(), "outcomes": [{"column": "y", "missing": "allowed"}]})
            assert fa.fold_query(connection, query, allowed, label="1", key=KEY).n == 40


@pytest.mark.parametrize("engine", ["sqlite", "mariadb"])
def test_text_is_no_number(engine: str, request: pytest.FixtureRequest) -> None:
    with closing(connector(engine, request)(ROWS)) as connection:
        query = "select g, who, c, case when y = 3 then 'three' else y end as y from visits"
        with pytest.raises(fa.RecordError, match="y: 1 wrong type"):
            fa.fold_query(connection, query, PLAN, label="1", key=KEY)


@pytest.mark.parametrize(("kind", "connect"), in_turn(["decimal(12, 2)", "date"]), indirect=["connect"])
def test_identifiers_of_other_types_must_be_cast(kind: str, connect: Connect, request: pytest.FixtureRequest) -> None:
    if (kind, engine := request.node.callspec.params["connect"]) == ("date", "sqlite"):
        pytest.skip("SQLite has dates as text")
    as_date = "cast('2026-03-01' as date)"
    half = "cast(y + 0.5 as decimal(12, 2))" if engine != "sqlite" else "y + 0.5"
    query = f"select g, y, c, {as_date if kind == 'date' else half} as who from visits"
    with closing(connect(ROWS)) as connection:
        with pytest.raises(fa.RecordError, match=r"CAST\(who AS VARCHAR\) AS who"):
            fa.fold_query(connection, query, PLAN, label="1", key=KEY)
        text = "char" if engine == "mariadb" else "String" if engine == "clickhouse" else "varchar(20)"
        query = f"select r.*, cast(r.number as {text}) as who from (select g, y, c, 7 as number from visits) as r"
        assert fa.fold_query(connection, query, PLAN, label="1", key=KEY).n == 40


def test_no_records_leave_the_label_free(connect: Connect) -> None:
    trial = fa.Trial(PLAN, key=KEY)
    with closing(connect(ROWS)) as connection:
        with pytest.raises(fa.SourceError, match="selected no record; nothing was folded, and '1' may be folded later"):
            fa.fold_query(connection, "select * from visits where y > 1e6", PLAN, label="1", into=trial)
        assert fa.fold_query(connection, "visits", PLAN, label="1", into=trial).labels == {"1"}


def test_a_missing_column_is_named(connect: Connect) -> None:
    with closing(connect(ROWS)) as connection, pytest.raises(fa.SourceError, match=r"(?s)could not run.*who") as caught:
        fa.fold_query(connection, "select g, y, c from visits", PLAN, label="1", key=KEY)
    assert fa.Trial(PLAN, key=KEY).secret.for_warehouse() not in str(caught.value)


def test_an_answer_is_folded_in_any_form() -> None:
    answer = answer_of()
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold_sums(answer, label="arrow")
    trial.fold_sums(answer.to_pandas(), label="pandas")
    trial.fold_sums(answer.to_pylist(), label="dicts")
    trial.fold_sums([{name: str(value) for name, value in line.items()} for line in answer.to_pylist()], label="text")
    assert trial.n == 160
    assert trial.labels == {"arrow", "pandas", "dicts", "text"}


CHANGES: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "empty": (lambda lines: lines[:0], "is empty"),
    "cut short": (lambda lines: lines[:-1], "as many lines"),
    "without its first line": (lambda lines: lines[1:], "as many lines"),
    "with a line twice": (lambda lines: pd.concat([lines, lines[-1:]]), "as many lines"),
    "of other columns": (lambda lines: lines.drop(columns="s1"), "lacks columns"),
    "altered sum": (lambda lines: lines.assign(s0=lines["s0"] * 1.001), "totals"),
    "altered count": (lambda lines: lines.assign(n=lines["n"].where(lines["part"] != "sums 0 of 0", 5)), "totals"),
    "with words": (lambda lines: lines.assign(n="many"), "no numbers"),
    "with halves": (lambda lines: lines.assign(n=lines["n"] + 0.5), "counts do not fit"),
    "of other arms": (lambda lines: lines.assign(arm=7), "cells that the plan does not have"),
    "of parts of other records": (lambda lines: halved(lines), "different numbers of records"),
}


def halved(lines: pd.DataFrame) -> pd.DataFrame:
    """With another number of records in the lines by group, and totals that fit."""
    here = (lines["part"] == "sums 0 of 1") & (lines["grp"] >= 0)
    return lines.assign(n=lines["n"] + here, total=lines["total"] + here)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_answer_is_refused(name: str) -> None:
    change, words = CHANGES[name]
    trial = fa.Trial(PLAN, key=KEY)
    before = trial.dumps()
    with pytest.raises(fa.SourceError, match=words):
        trial.fold_sums(change(answer_of().to_pandas()), label="1")
    assert trial.dumps() == before


def test_an_answer_of_another_plan_or_key_is_refused() -> None:
    trial = fa.Trial(PLAN, key=KEY)
    with pytest.raises(fa.SourceError, match="another plan"):
        trial.fold_sums(answer_of(fa.Plan.of({**PLAN.settings(), "name": "e"})), label="1")
    with pytest.raises(fa.SourceError, match="another group key"):
        trial.fold_sums(answer_of(key=bytes([1]) * 16), label="1")
    with pytest.raises(fa.SourceError, match="not the answer"):
        trial.fold_sums(ROWS, label="1")
    assert trial.n == 0


def test_a_label_is_used_once_and_survives() -> None:
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold_sums(answer_of(), label="1")
    again = fa.Trial.loads(trial.dumps(), PLAN, key=KEY)
    for each in (trial, again):
        with pytest.raises(fa.SourceError, match="'1' is in this trial already"):
            each.fold_sums(answer_of(), label="1")
    with pytest.raises(fa.StateError, match="both trials have the records of '1'"):
        trial.merge(again)
    for label in ("", "  "):
        with pytest.raises(fa.SourceError, match="give the records a label"):
            trial.fold_sums(answer_of(), label=label)
    assert trial.n == 40


def test_an_ended_trial_takes_no_answer() -> None:
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold_sums(answer_of(), label="1")
    trial.end(without_effects=True)
    with pytest.raises(fa.EndedError):
        trial.fold_sums(answer_of(), label="2")


STREAMED: dict[str, dict[str, Any]] = {
    'hash = "sha256"': {"hash": "siphash"},
    "no `unit` to be dealt": {"unit": None, "received": "z"},
}


@pytest.mark.parametrize("why", STREAMED)
def test_plans_that_no_database_can_sum_say_why_and_stream(why: str) -> None:
    plan = fa.Plan.of({**PLAN.settings(), **STREAMED[why]})
    with pytest.raises(fa.PlanError, match=why):
        plan.sql("visits", dialect="duckdb")
    with closing(in_duckdb(ROWS.assign(z=1))) as connection:
        with pytest.warns(fa.StreamedWarning, match=why):
            trial = fa.fold_query(connection, "select * from visits", plan, label="1", key=KEY)
        assert trial.n == 40
        with pytest.warns(fa.StreamedWarning, match=why):
            assert fa.fold_query(connection, "visits", plan, label="1", key=KEY).n == 40  # a table's name will do
        with pytest.raises(fa.SourceError, match="'1' is in this trial already"):
            fa.fold_query(connection, "select * from visits", plan, label="1", into=trial)
        with pytest.raises(fa.SourceError, match="need a label"):
            fa.fold_query(connection, "select * from visits", PLAN)


def test_what_cannot_be_asked_says_what_to_do(postgres: Postgres) -> None:
    with pytest.raises(fa.SourceError, match="must be an open connection"):
        fa.fold_query("duckdb:///shop.duckdb", "visits", PLAN, label="1", key=KEY)
    with closing(in_postgres(postgres)(ROWS)) as connection:
        booleans = "select g, who, c, y > 3 as y from visits"
        cast = f"select g, who, c, y::int as y from ({booleans}) as r"
        assert fa.fold_query(connection, cast, PLAN, label="1", key=KEY).n == 40
        with pytest.raises(fa.SourceError, match="Let the query cast them"):
            fa.fold_query(connection, booleans, PLAN, label="1", key=KEY)


def test_covariates_without_coefficients_are_not_passed_over_in_silence() -> None:
    plan = fa.Plan.of({**PLAN.settings(), "covariates": ["x"]})
    with closing(in_duckdb(ROWS.assign(x=1.0))) as connection:
        trial = fa.fold_query(connection, "visits", plan, label="1", key=KEY)
    assert "covariates are not used: the plan has covariates and no coefficients" in " ".join(
        str(trial.effects()).split()
    )


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(fa.PlanError, match="there is no dialect 'postgresql'; did you mean 'postgres'"):
        PLAN.sql("visits", dialect="postgresql")


def test_the_key_is_bound_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    group_key = fa.Trial(PLAN, key=KEY).secret.for_warehouse()
    seen: list[str] = []
    with closing(in_sqlite(ROWS)) as connection:
        connection.set_trace_callback(None)
        real: Any = connection

        class Listening:
            __module__ = "sqlite3"

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def cursor(self) -> Any:
                return Cursor(real.cursor())

        class Cursor:
            def __init__(self, cursor: sqlite3.Cursor) -> None:
                self.cursor = cursor

            def execute(self, statement: str, parameters: Any) -> Any:
                seen.append(statement)
                return self.cursor.execute(statement, parameters)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.cursor, name)

        fa.fold_query(Listening(), "visits", PLAN, label="1", key=KEY)
    assert len(seen) == 1
    assert group_key not in seen[0]


def test_units_are_counted_for_the_gate() -> None:
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold_sums(answer_of(), label="1")
    assert trial.newcomers.distinct == 17
    trial.fold_sums(answer_of(), label="2")  # they may be the same
    assert trial.newcomers.distinct == 17


def test_covariates_without_coefficients_are_not_adjusted_for() -> None:
    plan = fa.Plan.of({**PLAN.settings(), "covariates": ["x"]})
    rows = ROWS.assign(x=ROWS["y"] % 5)
    with closing(in_duckdb(rows)) as connection:
        trial = fa.fold_query(connection, "visits", plan, label="1", key=KEY)
    adjusted = [row for row in trial.effects() if row.estimator == "adjusted"]
    assert adjusted
    assert all("plan.calibrated" in str(row.why) for row in adjusted)
