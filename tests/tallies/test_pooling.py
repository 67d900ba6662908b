"""Rare levels are pooled before moments leave memory: as if the records had never told them apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from foldaway.tallies import arms_of

LEVELS = {"country": ["fr", "de", "li", "va"], "device": ["phone", "desk"]}


def plan_of(**settings: object) -> fa.Plan:
    return fa.Plan(
        name="pooled",
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y", "z"],
        covariates=["age", "country", "device"],
        levels=LEVELS,
        keep="moments",
        **settings,  # type: ignore[arg-type]
    )


def records(n: int, seed: int, rare: int, first: int | None = None) -> pd.DataFrame:
    """Of each arm, so many from Liechtenstein and one fewer from the Vatican; France may be rare too."""
    rng = np.random.default_rng(seed)
    country = np.where(rng.random(n) < (0.5 if first is None else 0), "fr", "de").astype(object)
    for level, count in (("li", rare), ("va", rare - 1), ("fr", first or 0)):
        free = np.flatnonzero(np.isin(country, ["fr", "de"] if first is None else ["de"]))
        if count:
            country[free[: 2 * count]] = level
    arm = np.tile(["a", "b"], n // 2)
    return pd.DataFrame(
        {
            "arm": arm,
            "who": 2 * rng.integers(0, n // 4, n) + (arm == "b"),
            "age": rng.normal(40, 10, n),
            "country": country,
            "device": rng.choice(LEVELS["device"], n),
            "y": rng.normal(100, 10, n) + (country == "li") * 50,
            "z": rng.random(n),
        }
    )


def folded(plan: fa.Plan, rows: pd.DataFrame, *, saved: bool = True) -> fa.Trial:
    trial = fa.Trial(plan, key=bytes(16)) if plan.keyed else fa.Trial(plan)
    trial.fold(rows)
    return fa.Trial.loads(trial.dumps()) if saved else trial


def joined(rows: pd.DataFrame, *levels: str) -> pd.DataFrame:
    return rows.assign(country=rows["country"].replace(dict.fromkeys(levels, "fr")))


def assert_same(one: fa.Trial, two: fa.Trial) -> None:
    left, right = (pd.DataFrame(trial.effects().to_dicts()) for trial in (one, two))
    numbers = ["estimate", "std_error", "ci_lower", "ci_upper"]
    np.testing.assert_allclose(left[numbers].astype(float), right[numbers].astype(float), rtol=1e-8)


def pooled(trial: fa.Trial) -> list[str]:
    return [trial.plan.regressors[column] for column in sorted(arms_of(trial.tallies)[0].pooled)]


@pytest.mark.parametrize("settings", [{}, {"unit": "who", "complete_units": True}, {"unit": "who", "bootstrap": 50}])
def test_a_saved_state_is_that_of_records_that_had_the_first_level_instead(settings: dict[str, object]) -> None:
    plan, rows = plan_of(**settings), records(400, 1, rare=4)
    trial = folded(plan, rows)
    assert pooled(trial) == ["country[li]", "country[va]"]
    assert_same(trial, folded(plan, joined(rows, "li", "va"), saved=False))
    assert any("fr, li, va are one level here" in note for note in trial.effects().notes)


def test_common_levels_stay_and_nothing_is_said() -> None:
    trial = folded(plan_of(), rows := records(400, 1, rare=11))
    assert pooled(trial) == []
    assert_same(trial, folded(plan_of(), rows, saved=False))
    assert not any("one level" in note for note in trial.effects().notes)


def test_a_level_that_nobody_has_gives_nobody_away() -> None:
    assert pooled(folded(plan_of(), joined(records(400, 1, rare=4), "li", "va"))) == []


def test_a_rare_first_level_takes_the_rarest_of_the_others_with_it() -> None:
    trial = folded(plan_of(), records(400, 1, rare=12, first=3))
    assert pooled(trial) == ["country[va]"]


def test_records_that_come_later_are_pooled_too() -> None:
    plan, first, later = plan_of(), records(400, 1, rare=4), records(400, 2, rare=20)
    trial = folded(plan, first)
    trial.fold(later)
    assert_same(trial, folded(plan, joined(pd.concat([first, later]), "li", "va"), saved=False))


def test_a_merge_pools_what_either_has_pooled() -> None:
    plan, one, two = plan_of(), records(400, 1, rare=4), records(300, 2, rare=10)
    parts = [folded(plan, one), folded(plan, two)]
    assert [pooled(part) for part in parts] == [["country[li]", "country[va]"], ["country[va]"]]
    whole = folded(plan, joined(pd.concat([one, two]), "li", "va"), saved=False)
    for merged in (parts[0] + parts[1], parts[1] + parts[0]):
        assert pooled(merged) == ["country[li]", "country[va]"]
        assert_same(merged, whole)
        assert fa.Trial.loads(merged.dumps()).dumps() == merged.dumps()


def test_units_count_and_not_their_records() -> None:
    """One person from Liechtenstein with many records is still one person."""
    rows = records(400, 1, rare=11)
    rows.loc[rows["country"] == "li", "who"] = 10_000 + (rows["arm"] == "b")
    settings = {"unit": "who", "complete_units": True}
    assert "country[li]" in pooled(folded(plan_of(**settings), rows))
    assert "country[li]" not in pooled(folded(plan_of(), rows))


def test_memory_keeps_levels_apart_until_the_state_leaves() -> None:
    trial = folded(plan_of(), records(400, 1, rare=4), saved=False)
    trial.effects()
    trial.report()
    assert pooled(trial) == []
    assert pooled(fa.Trial.loads(trial.exchanged())) == []
