"""Effects from a database's sums are those from its rows, for every kind of outcome and in every database."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from databases import ENGINES, connector, in_duckdb, in_sqlite
from sizes import mostly_slow

KEY = bytes(range(16))
HALVES = {"a": 0.5, "b": 0.5}
COEFFICIENTS: dict[str, Any] = {
    "center": {"x": 5.0, "c[fr]": 0.4},
    "slopes": {"y": {"x": 0.3, "c[fr]": -1.0}, "z": {"x": -0.1, "c[fr]": 0.2}},
}
SLOPES = {"y": COEFFICIENTS["slopes"]["y"], "k within [0, 20]": {"x": 0.0, "c[fr]": 0.0}}
STRATA = {"column": "s", "probabilities": {"north": {"a": 0.3, "b": 0.7}, "south": {"a": 0.6, "b": 0.4}}}
OF_C = {"c": ["de", "fr"]}
LEVELS = {"c": ["de", "fr"], "o": ["k", "l", "m"]}

PLANS: dict[str, dict[str, Any]] = {
    "mean": {"outcomes": ["y"]},
    "far from zero": {"outcomes": ["far"]},
    "no units": {"outcomes": ["y", {"kind": "ratio", "numerator": "y", "denominator": "k"}], "unit": None},
    "capped and bounded": {"outcomes": [{"column": "y", "cap": [1, 60]}, "k"], "bounds": {"k": [1, 8]}},
    "share": {
        "outcomes": [{"kind": "share", "column": "y", "above": 30}, {"kind": "share", "column": "k", "equals": 3}]
    },
    "ratio and total": {
        "outcomes": [
            {"kind": "ratio", "numerator": "y", "denominator": "k"},
            {"kind": "total", "column": "y"},
        ],
    },
    "missing": {
        "outcomes": [
            {"column": "m", "missing": "allowed"},
            "y",
            {"kind": "ratio", "numerator": "m", "denominator": "k", "missing": "allowed", "name": "each"},
        ],
    },
    "weights": {"outcomes": ["y", {"column": "m", "missing": "allowed"}], "weight": "w"},
    "quantile": {"outcomes": [{"kind": "quantile", "column": "y", "quantiles": [0.9], "bounds": [1, 1000]}]},
    "quantiles of weights without units": {
        "outcomes": [{"kind": "quantile", "column": "y", "quantiles": [0.5], "bounds": [1, 1000]}],
        "weight": "w",
        "unit": None,
    },
    "cluster": {"outcomes": ["y", "k"], "cluster": "v"},
    "compliers": {"outcomes": ["y", {"column": "m", "missing": "allowed"}], "received": "z"},
    "adjusted": {"outcomes": ["y", "z"], "covariates": ["x", "c"], "levels": OF_C, "coefficients": COEFFICIENTS},
    "adjusted with weights": {
        "outcomes": ["y", "z"],
        "covariates": ["x", "c"],
        "levels": OF_C,
        "coefficients": COEFFICIENTS,
        "weight": "w",
    },
    "segments": {"outcomes": ["y", {"column": "m", "missing": "allowed"}], "segments": ["o", "c"], "levels": LEVELS},
    "segments that are not listed": {"outcomes": ["y"], "segments": ["o", "c"]},
    "strata": {"outcomes": ["y"], "strata": STRATA},
    "strata without units": {"outcomes": ["y"], "strata": STRATA, "unit": None, "weight": "w"},
    "strata, segments and quantiles": {
        "outcomes": [
            "y",
            {"kind": "quantile", "column": "k", "quantiles": [0.5], "bounds": [0, 20], "resolution": 0.05},
        ],
        "strata": STRATA,
        "segments": ["o", "s"],
        "covariates": ["x", "c"],
        "levels": LEVELS,
        "coefficients": {"center": COEFFICIENTS["center"], "slopes": SLOPES},
        "expected_units": 320,
    },
    "dropped": {"outcomes": ["y", "hole"], "drop_limit": 0.5, "bounds": {"y": [0, 90]}},
    "dropped beyond bounds": {
        "outcomes": ["y", "hole"],
        "drop_limit": 0.5,
        "bounds": {"y": [1, 90]},
        "beyond": "refuse",
    },
}


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


def assert_same(ours: fa.Trial, theirs: fa.Trial) -> None:
    """Estimates to 1e-9 of a standard error, errors to 1e-9; whatever else is told is the same."""
    assert (ours.n, ours.counts, ours.dropped) == (theirs.n, theirs.counts, theirs.dropped)
    one, two = ours.effects().to_dicts(), theirs.effects().to_dicts()
    assert len(one) == len(two) > 0
    for told, trial in ((one, ours), (two, theirs)):
        told += [msgspec.structs.asdict(row) for each in trial.effects().segments for row in each.effects]
        told += [{"p": each.differ_p_value} for each in trial.effects().segments]
    for left, right in zip(one, two, strict=True):
        assert left.keys() == right.keys()
        for name, value in left.items():
            if isinstance(value, float) and not math.isnan(value):
                error = 0.0 if name == "std_error" else right.get("std_error")
                assert value == pytest.approx(right[name], rel=1e-8, abs=1e-9 * (error or 0.0)), name
            elif not isinstance(value, float):
                assert value == right[name], name


def cases() -> list[Any]:
    """Every plan in every engine; each run has all plans in DuckDB, each in one of the others, and one in Spark."""
    others = [each for each in ENGINES if each not in ("duckdb", "spark")]
    quick = [(name, each) for at, name in enumerate(PLANS) for each in ("duckdb", others[at % len(others)])]
    quick.append(("segments that are not listed", "spark"))
    return mostly_slow([(name, engine) for name in PLANS for engine in ENGINES], *quick)


@pytest.mark.parametrize(("name", "connection"), cases(), indirect=["connection"])
def test_sums_of_a_database_are_those_of_its_rows(name: str, connection: Any) -> None:
    plan = plan_of(**PLANS[name])
    theirs = fa.Trial(plan, key=KEY)
    theirs.fold(ROWS)
    ours = fa.fold_query(connection, "visits", plan, label="all", key=KEY)
    assert_same(ours, theirs)
    again = fa.Trial.loads(ours.dumps(), plan, key=KEY)
    assert_same(again, theirs)


@pytest.mark.parametrize("connection", mostly_slow(ENGINES, *ENGINES[:-1]), indirect=True)
def test_days_add_up_with_each_other_and_with_rows(connection: Any) -> None:
    plan = plan_of(**PLANS["segments that are not listed"])
    theirs = fa.Trial(plan, key=KEY)
    theirs.fold(ROWS)
    ours = None
    for day, test in {"1": "k < 4", "2": "k >= 4 and k < 8"}.items():
        query = f"select * from visits where {test} -- of {day}\n;"
        ours = fa.fold_query(connection, query, plan, label=day, into=ours, key=KEY if ours is None else None)
    assert ours is not None
    ours.fold(ROWS[ROWS["k"] >= 8])
    assert_same(ours, theirs)
    with pytest.raises(fa.SourceError, match="'2' is in this trial already"):
        fa.fold_query(connection, "visits", plan, label="2", into=ours)


CALIBRATED: dict[str, dict[str, Any]] = {
    "numbers and levels": {"outcomes": ["y", "far"], "covariates": ["x", "c"], "levels": OF_C},
    "missing and weights": {
        "outcomes": ["y", {"column": "m", "missing": "allowed"}, {"kind": "share", "column": "k", "above": 6}],
        "covariates": ["x", "c"],
        "levels": OF_C,
        "weight": "w",
    },
    "dropped, and a rare level": {
        "outcomes": ["hole", {"kind": "ratio", "numerator": "y", "denominator": "k"}],
        "covariates": ["o", "z"],
        "levels": {"o": ["k", "l", "m"]},
        "drop_limit": 0.5,
        "bounds": {"y": [1, 90]},
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

    plan = plan_of(outcomes=["y"], covariates=["x", "c"], levels=OF_C)
    connection = Unknown(in_sqlite(ROWS))
    assert plan.calibrated(connection, "select * from visits").coefficients == plan.calibrated(ROWS).coefficients
