"""Rare levels are pooled before moments leave memory: as if the records had never told them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from foldaway.auditing.audit import audit
from foldaway.tallies import arms_of
from foldaway.tallies.moments.few_values import Powers, few_values, standing_out
from foldaway.tallies.moments.outlying import outlying
from plans import listing

LEVELS = {"country": ["fr", "de", "li", "va"], "device": ["phone", "desk"]}


def plan_of(**settings: Any) -> fa.Plan:
    return fa.Plan(
        name="pooled",
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y", "z"],
        covariates=listing(["age", "country", "device"], LEVELS),
        **{"moments": fa.Moments(), **settings},
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
    """Except where sums are adjusted: by how the covariates predicted outcomes when the trial was first saved."""
    left, right = (pd.DataFrame(trial.effects().to_dicts()).query("estimator != 'adjusted'") for trial in (one, two))
    assert set(left["estimator"]) >= {"difference", "regression", "interacted", "ipw"}
    numbers = ["estimate", "std_error", "ci_lower", "ci_upper"]
    np.testing.assert_allclose(left[numbers].astype(float), right[numbers].astype(float), rtol=1e-8)


def pooled(trial: fa.Trial) -> list[str]:
    return [trial.plan.regressors[column] for column in sorted(arms_of(trial.tallies)[0].pooled)]


@pytest.mark.parametrize(
    "settings", [{}, {"unit": "who", "records_per_unit": "together"}, {"unit": "who", "moments": {"bootstrap": 50}}]
)
def test_a_saved_state_is_that_of_records_that_had_the_first_level_instead(settings: dict[str, Any]) -> None:
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
    settings = {"unit": "who", "records_per_unit": "together"}
    assert "country[li]" in pooled(folded(plan_of(**settings), rows))
    assert "country[li]" not in pooled(folded(plan_of(), rows))


def test_memory_keeps_levels_apart_until_the_state_leaves() -> None:
    trial = folded(plan_of(), records(400, 1, rare=4), saved=False)
    trial.effects()
    trial.report()
    assert pooled(trial) == []
    assert pooled(fa.Trial.loads(trial.exchanged())) == []


# Numeric covariates.


def numeric(x: list[float], **others: object) -> tuple[fa.Plan, pd.DataFrame]:
    """People with a numeric covariate, and amounts to the cent."""
    rng, n = np.random.default_rng(3), len(x)
    rows = pd.DataFrame({"arm": np.resize(["a", "b"], n), "x": x, "y": np.round(rng.lognormal(3, 1, n), 2), **others})
    plan = fa.Plan(
        name="numeric",
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        covariates=["x", *({"column": name, "levels": sorted(set(rows[name]))} for name in others)],
        moments=fa.Moments(),
    )
    return plan, rows


VALUES: list[tuple[float, ...]] = [(1, 2), (-3.5, 80), (0, 1, 2), (10, 25, 100), (0, 1, 2, 3), (1990, 1991, 1995, 1999)]


@pytest.mark.parametrize("values", VALUES)
def test_whoever_alone_has_one_of_few_values_is_told_to_the_cent_and_not_once_saved(values: tuple[float, ...]) -> None:
    x = np.resize(values[:-1], 400).astype(float)
    x[7] = values[-1]
    plan, rows = numeric(x.tolist())
    trial = folded(plan, rows, saved=False)
    arms = [Powers.of(arm) for arm in arms_of(trial.tallies)]
    found = few_values(1, [arm for arm in arms if arm is not None])
    assert found is not None
    assert found.values == pytest.approx(values)
    assert arms[1] is not None
    (alone,) = standing_out(arms[1], [found], [], 1)
    assert alone.total == pytest.approx([rows["y"][7]], abs=0.005)
    assert audit(plan, trial.tallies).solved >= 1
    saved = folded(plan, rows)
    assert pooled(saved) == ["x"]
    assert audit(plan, saved.tallies).solved == 0
    assert any(note.startswith("x is left out of a saved state") for note in saved.effects().notes)
    assert_same(saved, folded(plan, rows.assign(x=0.0), saved=False))


def test_few_values_that_many_have_stay() -> None:
    for values in VALUES:
        plan, rows = numeric(np.repeat(values, 60).tolist())
        trial = folded(plan, rows)
        assert pooled(trial) == []
        assert audit(plan, trial.tallies).solved == 0


@pytest.mark.parametrize("tops", [[40.0], [-1e6], [100.0, 60.0], [100.0, -95.0], [50.0, 50.0]])
def test_one_or_two_values_that_outweigh_all_others_go(tops: list[float]) -> None:
    x = np.random.default_rng(1).normal(size=1_000)
    x[0 : 2 * len(tops) : 2] = tops
    plan, rows = numeric((x + 7).tolist())
    trial = folded(plan, rows, saved=False)
    arm = Powers.of(arms_of(trial.tallies)[0])
    assert arm is not None
    assert sorted(outlying(arm, 1)) == pytest.approx(sorted(7 + top for top in tops), rel=0.02)
    found = {each.attack: each.near for each in audit(plan, trial.tallies).findings}
    # Beside a million, all other values are one.
    assert sum(found.get(attack, 0) for attack in ("covariates that outweigh", "covariates of few values")) == len(tops)
    saved = folded(plan, rows)
    assert pooled(saved) == ["x"]
    assert audit(plan, saved.tallies).solved == 0


def test_usual_numbers_stay() -> None:
    rng = np.random.default_rng(1)
    for x in (rng.normal(size=400), rng.exponential(size=400), rng.integers(18, 80, 400), rng.poisson(2, 400)):
        plan, rows = numeric(x.astype(float).tolist())
        assert pooled(folded(plan, rows)) == []


def test_within_a_level_too_somebody_stands_out_by_a_number() -> None:
    rng = np.random.default_rng(1)
    site = np.resize(list("ppppqqqqrr"), 800)
    few, many = np.resize([1.0, 2.0], 800), rng.normal(size=800)
    alone = np.flatnonzero((site == "r") & (np.arange(800) % 2 == 0))
    few[alone] = 1.0
    few[alone[0]] = 2.0  # many have a 2, and many are of this site
    others = np.flatnonzero(site != "r")
    many[others] *= 1_000
    many[alone[0]] = 60.0  # nothing beside the others' thousands
    for x in (few, many):
        plan, rows = numeric(x.tolist(), site=site)
        before = audit(plan, folded(plan, rows, saved=False).tallies)
        assert before.solved >= 1
        saved = folded(plan, rows)
        assert pooled(saved)
        assert audit(plan, saved.tallies).solved == 0


def test_a_column_of_zeros_and_ones_is_pooled_without_sums_of_fourth_order_too() -> None:
    x = np.zeros(400)
    x[7] = 1
    plan, rows = numeric(x.tolist())
    classical = fa.Plan(name="c", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"],
                        moments=fa.Moments(errors=["classical"]))  # fmt: skip
    for each in (plan, classical):
        assert pooled(folded(each, rows)) == ["x"]
