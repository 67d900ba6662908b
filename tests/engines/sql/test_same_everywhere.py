"""Days and coefficients from a database are those from its rows, in every database."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from databases import ENGINES, connector, in_duckdb, in_sqlite
from drawn_plans import difference, told_of
from sizes import mostly_slow

KEY = bytes(range(16))
HALVES = {"a": 0.5, "b": 0.5}
WITH_C = ["x", {"column": "c", "levels": ["de", "fr"]}]


def plan_of(**settings: Any) -> fa.Plan:
    plan = {"name": "d", "arm": "g", "arms": HALVES, "unit": "who", "hash": "sha256", **settings}
    return fa.Plan.of({name: value for name, value in plan.items() if value is not None})


def rows_of(n: int = 3000, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    who = rng.integers(0, n // 5, n)
    rows = pd.DataFrame(
        {
            "g": np.where(rng.random(n) < 0.5, "a", "b"),
            "who": [f"é'\"\\%{number}" for number in who],
            "v": who // 3,
            "y": rng.lognormal(3, 1, n) + 0.2 * (who % 7),
            "far": 1e9 + rng.normal(0, 1, n),
            "z": rng.integers(0, 2, n),
            "k": rng.integers(1, 12, n),
            "m": np.where(rng.random(n) < 0.2, np.nan, rng.normal(50, 20, n)),
            "hole": np.where(rng.random(n) < 0.02, np.nan, rng.normal(50, 20, n)),
            "w": rng.uniform(0.2, 3, n),
            "x": rng.normal(5, 2, n),
            "c": rng.choice(["de", "fr"], n),
            "o": rng.choice(["k", "l", "m"], n, p=[0.6, 0.3, 0.1]),
            "s": rng.choice(["north", "south"], n),
        }
    )
    rows["y"] += np.where(rows["g"] == "b", 2.0, 0.0)
    return rows


ROWS = rows_of()


@pytest.fixture(scope="module")
def _made() -> dict[str, Any]:
    return {}


@pytest.fixture
def connection(request: pytest.FixtureRequest, _made: dict[str, Any]) -> Any:
    engine = request.param
    if engine not in _made:
        _made[engine] = connector(engine, request)(ROWS)
    return _made[engine]


@pytest.mark.parametrize("connection", mostly_slow(ENGINES, *ENGINES[:-1]), indirect=True)
def test_a_baseline_far_from_zero_keeps_its_digits(connection: Any) -> None:
    plan = plan_of(outcomes=["y"], baseline=["far", "m", {"column": "o", "levels": ["k", "l", "m"]}])
    found = fa.fold_query(connection, "select * from visits", plan, label="all", key=KEY).effects().baseline
    for row in found:
        mine = ROWS[ROWS["g"] == row.arm][row.column]
        assert (row.n, row.missing) == (mine.notna().sum(), mine.isna().sum())
        if row.level:
            assert row.count == (mine == row.level).sum()
        else:
            assert row.mean == pytest.approx(mine.mean(), rel=1e-12)
            assert row.std_dev == pytest.approx(mine.std(), rel=1e-9)


@pytest.mark.parametrize("connect", [in_duckdb, in_sqlite])
def test_text_without_levels_is_refused_where_a_database_sums(connect: Any) -> None:
    plan = plan_of(outcomes=["y"], baseline=["x", "o"])
    with pytest.raises((fa.SourceError, fa.RecordError), match="`levels`") as refused:
        fa.fold_query(connect(ROWS), "select * from visits", plan, label="all", key=KEY)
    assert "'k'" not in str(refused.value)


@pytest.mark.parametrize("connection", mostly_slow(ENGINES, *ENGINES[:-1]), indirect=True)
def test_days_add_up_with_each_other_and_with_rows(connection: Any) -> None:
    plan = plan_of(outcomes=["y"], segments=["o", "c"])
    theirs = fa.Trial(plan, key=KEY)
    theirs.fold(ROWS)
    ours = None
    for day, test in {"1": "k < 4", "2": "k >= 4 and k < 8"}.items():
        query = f"select * from visits where {test} -- of {day}\n;"
        ours = fa.fold_query(connection, query, plan, label=day, into=ours, key=KEY if ours is None else None)
    assert ours is not None
    ours.fold(ROWS[ROWS["k"] >= 8])
    for each in (ours, fa.Trial.loads(ours.dumps(), plan, key=KEY)):
        assert difference(told_of(lambda each=each: each), told_of(lambda: theirs)) == ""  # type: ignore[misc]
    with pytest.raises(fa.SourceError, match="'2' is in this trial already"):
        fa.fold_query(connection, "visits", plan, label="2", into=ours)


CALIBRATED: dict[str, dict[str, Any]] = {
    "numbers and levels": {"outcomes": ["y", "far"], "covariates": WITH_C},
    "missing and weights": {
        "outcomes": ["y", {"column": "m", "missing": "allowed"}, {"kind": "share", "column": "k", "above": 6}],
        "covariates": WITH_C,
        "weight": "w",
    },
    "dropped, and a rare level": {
        "outcomes": ["hole", {"kind": "ratio", "numerator": "y", "denominator": "k", "bounds": {"y": [1, 90]}}],
        "covariates": [{"column": "o", "levels": ["k", "l", "m"]}, "z"],
        "drop_limit": 0.5,
        "privacy": {"cohort": 350, "smallest_cell": 20},
    },
}


def calibrations() -> list[Any]:
    """Every plan in every engine; each run has all in DuckDB, and one in each of the others."""
    quick = [(name, "duckdb") for name in CALIBRATED]
    quick += [(list(CALIBRATED)[at % 3], each) for at, each in enumerate(ENGINES) if each not in ("duckdb", "spark")]
    return mostly_slow([(name, engine) for name in CALIBRATED for engine in ENGINES], *quick)


@pytest.mark.parametrize(("name", "connection"), calibrations(), indirect=["connection"])
def test_coefficients_from_a_database_are_those_from_its_rows(name: str, connection: Any) -> None:
    plan = plan_of(**CALIBRATED[name])
    theirs, ours = plan.calibrated(ROWS).coefficients, plan.calibrated(connection, "visits").coefficients
    assert ours is not None
    assert theirs is not None
    for value, slopes in theirs.slopes.items():
        # They are told to three digits, of which the last may round either way.
        assert ours.slopes[value] == pytest.approx(slopes, rel=0.011, abs=1e-9)
    assert ours.center == pytest.approx(theirs.center, rel=1e-9)


def test_coefficients_are_refused_of_few_records_and_of_faulty_ones() -> None:
    plan = plan_of(outcomes=["hole"], covariates=["x"])
    connection = in_duckdb(ROWS)
    with pytest.raises(fa.EstimateError, match="from 2,000 records on"):
        plan_of(outcomes=["y"], covariates=["x"]).calibrated(connection, "select * from visits limit 1500")
    with pytest.raises(fa.RecordError, match="hole"):
        plan.calibrated(connection, "visits")
    with pytest.raises(fa.SourceError, match="one query"):
        plan_of(outcomes=["y"], covariates=["x"]).calibrated(connection, "delete from visits")
    assert connection.execute("select count(*) from visits").fetchone() == (len(ROWS),)


def test_rows_come_where_no_statement_can_be_written() -> None:
    """Through a connection of which the dialect is not known."""

    class Unknown:
        def __init__(self, connection: Any) -> None:
            self.cursor = connection.cursor

    plan = plan_of(outcomes=["y"], covariates=WITH_C)
    connection = Unknown(in_sqlite(ROWS))
    assert plan.calibrated(connection, "select * from visits").coefficients == plan.calibrated(ROWS).coefficients
