"""Laws of every row: a number is there or a reason is, and nothing in between."""

from __future__ import annotations

import math
import warnings
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from fuzzing import fuzz
from reported import CASES, case

INTERVAL = ("std_error", "statistic", "df", "p_value", "ci_lower", "ci_upper")
RELATIVE = ("relative_std_error", "relative_ci_lower", "relative_ci_upper")
ANYTIME = ("anytime_ci_lower", "anytime_ci_upper", "anytime_p_value")


def require_lawful(effects: fa.Effects) -> None:
    """All or none of an interval's numbers, a sentence where there are none, and never NaN."""
    for row in effects:
        numbers = msgspec.structs.asdict(row)
        finite = {name: value for name, value in numbers.items() if isinstance(value, float) and name != "df"}
        assert all(map(math.isfinite, finite.values())), row
        assert row.df is None or row.df > 0
        for fields, why in ((INTERVAL, row.why), (RELATIVE, row.relative_why), (ANYTIME, row.anytime_why)):
            there = {numbers[field] is not None for field in fields}
            assert there == {why is None}, (row, fields)
            assert why is None or (why[0].isupper() and why.endswith("."))
        assert row.reliable is (row.why is None)
        assert not row.reliable or row.estimate is not None
        if row.anytime_ci_lower is not None and row.anytime_ci_upper is not None:
            assert row.ci_lower is not None
            assert row.ci_upper is not None
            assert row.anytime_ci_lower < row.ci_lower < row.ci_upper < row.anytime_ci_upper
            excludes = row.anytime_ci_lower > 0 or row.anytime_ci_upper < 0
            assert excludes == (row.anytime_p_value is not None and row.anytime_p_value < 1 - effects.confidence)
    assert fa.Effects.from_json(effects.to_json()).rows == effects.rows


def effects_of(trial: fa.Trial) -> fa.Effects:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        return trial.effects()


@pytest.mark.parametrize("name", CASES)
def test_every_row_of_every_kind_of_trial(name: str) -> None:
    require_lawful(effects_of(case(name)))


@fuzz(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, -1.0, 2.5, 1e-9, 1e9, 1e39]), st.integers(0, 9)),
        max_size=40,
    ),
    st.sampled_from([None, 2, 5]),
)
def test_every_row_of_any_few_records(records: list[tuple[str, float, int]], bootstrap: int | None) -> None:
    plan = fa.Plan(
        name="few",
        arm="g",
        arms={"a": 0.4, "b": 0.4, "c": 0.2},
        outcomes=["y"],
        covariates=["x"],
        unit="u",
        moments=fa.Moments(bootstrap=bootstrap),
        records_per_unit="together",
    )
    trial = fa.Trial(plan, key=None if bootstrap is None else bytes(16))
    if records:
        arms, y, units = zip(*records, strict=True)
        names = [f"{arm}{unit}" for arm, unit in zip(arms, units, strict=True)]  # a unit is in one arm
        trial.fold({"g": arms, "y": y, "x": [math.sin(i) for i in range(len(y))], "u": names})
    require_lawful(effects_of(trial))


def test_what_is_shown_says_each_reason_once() -> None:
    effects = effects_of(case("extreme"))
    for text in (" ".join(str(effects).split()), effects.to_html()):
        for why in {row.why for row in effects if row.why}:
            assert text.count(why.replace("'", "&#x27;") if "<p>" in text else why) == 1


def test_rows_keep_their_types_where_nothing_can_be_told() -> None:
    nothing = effects_of(
        fa.Trial(fa.Plan(name="n", arm="g", arms={"a": 0.5, "b": 0.5}, moments=fa.Moments(), outcomes=["y"]))
    )
    something = effects_of(case("large"))
    assert len(nothing) > 0
    assert nothing.to_arrow().schema == something.to_arrow().schema
    frame: Any = nothing.to_pandas()
    assert not frame["reliable"].any()
    assert set(frame["why"]) == {"There are no records yet.", "An arm has no records yet."}
    assert np.isnan(frame["std_error"].astype(float)).all()
