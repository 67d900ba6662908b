"""Effects from a database's sums are those from its rows, for plans drawn at random, in every database."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

import pytest

import foldaway as fa
from databases import connector
from drawn_plans import Settings, difference, drawn, plan_of, rows_of, smallest, told_of

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

KEY = bytes(range(16))
ROWS = rows_of()
BY_PART = dict(iter(ROWS.groupby("part")))

PLANS = {"duckdb": 200, "postgres": 90, "sqlite": 90, "clickhouse": 60, "mariadb": 50, "spark": 10}
"""How many plans each engine has: all together 500."""

QUICK, MOST = 4, 10
"""The plans of each engine but Spark that every run has, and how many further ones make a test."""


def cases() -> list[Any]:
    """The plans of every engine by number, in portions."""
    found = []
    for (engine, number), end in zip(PLANS.items(), accumulate(PLANS.values()), strict=True):
        first = end - number
        if engine != "spark":
            found.append(pytest.param(engine, range(first, first + QUICK), id=f"{engine}-first"))
            first += QUICK
        for start in range(first, end, MOST):
            those = range(start, min(start + MOST, end))
            found.append(pytest.param(engine, those, id=f"{engine}-{start}", marks=pytest.mark.slow))
    return found


@pytest.fixture(scope="module")
def opened() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(("engine", "seeds"), cases())
def test_sums_of_a_database_are_those_of_its_rows(
    engine: str, seeds: range, request: pytest.FixtureRequest, opened: dict[str, Any]
) -> None:
    if engine not in opened:
        opened[engine] = connector(engine, request)(ROWS)
    for seed in seeds:
        part, settings = drawn(seed)
        if differs := compared(opened[engine], part, settings):
            settings = smallest(settings, partial(compared, opened[engine], part))
            differs = compared(opened[engine], part, settings)
        assert not differs, f"plan {seed} on the part {part!r}: {differs}\n{settings}"


def compared(connection: Any, part: str, settings: Settings) -> str:
    """Where the effects of a database's sums differ from those of the same rows; empty if they do not."""
    plan, query = plan_of(settings), f"select * from visits where part = '{part}'"
    assert plan is not None

    def folded() -> fa.Trial:
        trial = fa.Trial(plan, key=KEY)
        trial.fold(BY_PART[part])
        return trial

    theirs = told_of(folded)
    return difference(told_of(lambda: fa.fold_query(connection, query, plan, label="all", key=KEY)), theirs)
