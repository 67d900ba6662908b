"""The outlook: it comes true when the records come, and tells nothing that the effects have not told."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects.door import TOLD
from foldaway.effects.outlook import Outlook
from foldaway.planning import Baseline

PLAN = fa.Plan(name="ahead", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y", "bought"])


def trial(n: int, seed: int = 1) -> fa.Trial:
    rng = np.random.default_rng(seed)
    made = fa.Trial(PLAN)
    arm = np.array(["a", "b"])[rng.integers(0, 2, n)]
    made.fold({"arm": arm, "y": rng.normal(10, 3, n), "bought": (rng.random(n) < 0.2).astype(float)})
    return made


@pytest.mark.parametrize("sequential", [False, True])
def test_it_comes_true(sequential: bool) -> None:
    now, then = trial(4_000).effects(), trial(36_000).effects()
    ahead, there = now.outlook(sequential=sequential), then.outlook(sequential=sequential)
    for row, later in zip(ahead, there, strict=True):
        asked = now.outlook(width=later.width, sequential=sequential)
        found = next(each for each in asked if each.outcome == row.outcome)
        assert found.records_for_width == pytest.approx(36_000, rel=0.08)
        by_then = now.outlook(records=36_000, sequential=sequential)
        assert next(each for each in by_then if each.outcome == row.outcome).smallest == pytest.approx(
            then.outlook(records=36_000, sequential=sequential)[list(there).index(later)].smallest, rel=0.04
        )


def test_the_smallest_effect_is_that_of_planning() -> None:
    """With a normal outcome of known spread, `fa.power` for the same size says the same."""
    row = trial(4_000).effects().outlook(records=36_000)[0]
    planned = fa.power({"y": Baseline(level=10.0, sd=3.0)}, plan=PLAN, records=36_000)[0]
    assert row.smallest == pytest.approx(planned.effect, rel=0.03)


def test_days_are_records_at_a_rate() -> None:
    effects = trial(4_000).effects()
    by_days = effects.outlook(days=8, records_per_day=1_000, width=0.2)
    assert (by_days.by, by_days.days) == (12_000, 8)
    assert by_days.rows == effects.outlook(records=12_000, records_per_day=1_000, width=0.2).rows
    found = by_days[0]
    assert found.days_for_width == pytest.approx(((found.records_for_width or 0) - 4_000) / 1_000, abs=0.01)


def test_from_told_effects_it_follows_from_what_was_told() -> None:
    told = trial(4_000).told()
    again = fa.Effects.from_json(told.to_json())
    assert again.outlook(width=0.1).to_json() == told.outlook(width=0.1).to_json()
    # Records that change nothing of what is told change nothing of the outlook.
    other = trial(4_000)
    other.fold([{"arm": "a", "y": 10.0, "bought": 0.0}])
    assert other.read(TOLD).to_json() == told.to_json()
    assert other.read(TOLD).outlook().to_json() == told.outlook().to_json()


def test_it_prints_in_80_columns() -> None:
    ahead = trial(4_000).effects().outlook(days=8, records_per_day=1_000, width=0.2, sequential=True)
    assert max(map(len, str(ahead).splitlines())) <= 80
    assert "in about 8 days" in " ".join(str(ahead).split())
    assert json.loads(ahead.to_json())["rows"][0]["outcome"] == "y"
    assert repr(ahead) == "Outlook: ahead | n=4_000 | by=12_000"


@pytest.mark.parametrize("sequential", [False, True])
def test_without_an_error_it_says_why(sequential: bool) -> None:
    few = fa.Trial(PLAN)
    few.fold([{"arm": "a", "y": 1.0, "bought": 1.0}, {"arm": "b", "y": 2.0, "bought": 1.0}])
    ahead: Outlook = few.effects().outlook(sequential=sequential)
    assert [row.smallest for row in ahead] == [None, None]
    assert all(row.why for row in ahead)
    assert ahead[0].why in " ".join(str(ahead).split())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"records": 10}, "already has 4,000 records"),
        ({"records": 5_000, "days": 1}, "not both"),
        ({"days": 1}, "needs `records_per_day`"),
        ({"width": 0}, "must be above 0"),
        ({"power": 1.0}, "`power` must be"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(fa.EstimateError, match=words):
        trial(4_000).effects().outlook(**asked)


def test_it_allows_for_what_is_asked_and_for_the_correction() -> None:
    def smallest(**settings: Any) -> float:
        made = fa.Trial(fa.Plan(**{"name": "ahead", "arm": "arm", "arms": PLAN.arms, "outcomes": ["y"], **settings}))
        rng = np.random.default_rng(1)
        made.fold({"arm": np.array(["a", "b"] * 2000), "y": rng.normal(10, 3, 4000), "z": rng.normal(10, 3, 4000)})
        return float(made.effects().outlook(records=8_000)[0].smallest or 0)

    z = Baseline(level=10, sd=3.0)
    two = smallest()
    assert smallest(outcomes=[fa.Mean("y", better="higher", question="better")]) == pytest.approx(
        two * (1.645 + 0.842) / (1.960 + 0.842), rel=1e-3
    )
    assert smallest(outcomes=["y", "z"]) == pytest.approx(two * (2.241 + 0.842) / (1.960 + 0.842), rel=1e-3)
    assert smallest(outcomes=["y", "z"], correction="none") == pytest.approx(two, rel=1e-9)
    assert two == pytest.approx(fa.power({"y": z}, records=8_000)[0].effect, rel=0.02)
