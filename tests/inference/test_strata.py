"""Strata: effects within them, combined by size, as an analysis that kept all rows has them."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import StratifiedTable

import foldaway as fa
from foldaway.inference.loss import loss_of
from foldaway.inference.strata import sample_ratio_of_strata, sample_ratio_of_weights
from sizes import simulated

KEY = bytes(range(16))
SHARES = {
    "lyon": {"a": 0.5, "b": 0.5},
    "leeds": {"a": 0.7, "b": 0.3},
    "turin": {"a": 0.2, "b": 0.8},
    "empty": {"a": 0.9, "b": 0.1},
}
SETTINGS: dict[str, Any] = {
    "name": "strata",
    "arm": "g",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y"],
    "strata": fa.Strata("site", SHARES),
}
LEVELS = {"lyon": 0.0, "leeds": 6.0, "turin": -8.0}


def records(n: int, seed: int = 1, effect: float = 1.0) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    site = chance.choice(list(LEVELS), n)
    treated = chance.random(n) < np.array([SHARES[s]["b"] for s in site])
    y = np.array([LEVELS[s] for s in site]) + effect * treated + chance.normal(0, 2, n)
    return {"g": np.where(treated, "b", "a"), "y": y, "site": site, "u": np.arange(n)}


def folded(settings: dict[str, Any], data: dict[str, Any], size: int = 500) -> fa.Trial:
    trial = fa.Trial(fa.Plan(**settings), key=KEY)
    for at in range(0, len(data["y"]), size):
        trial.fold({name: column[at : at + size] for name, column in data.items()})
    return trial


def blocked(data: dict[str, Any]) -> tuple[float, float]:
    """The effect within strata combined by size, and Neyman's error, from kept rows."""
    effect = variance = 0.0
    for site in set(data["site"]):
        b, a = (data["y"][(data["site"] == site) & (data["g"] == arm)] for arm in ("b", "a"))
        share = (len(a) + len(b)) / len(data["y"])
        effect += share * (b.mean() - a.mean())
        variance += share**2 * (a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    return effect, math.sqrt(variance)


def test_within_strata_as_from_kept_rows() -> None:
    data = records(3000)
    trial = folded(SETTINGS, data)
    merged = folded(SETTINGS, {k: v[:900] for k, v in data.items()}) + folded(
        SETTINGS, {k: v[900:] for k, v in data.items()}
    )
    for each in (trial, merged, fa.Trial.loads(trial.dumps())):
        (row,) = each.effects()
        assert (row.estimate, row.std_error) == pytest.approx(blocked(data), rel=1e-12)


def test_the_pooled_difference_is_biased_and_strata_are_not() -> None:
    data = records(6000)
    with pytest.warns(fa.SampleRatioWarning):
        (pooled,) = folded({**SETTINGS, "strata": None, "arms": {"a": 0.3, "b": 0.7}}, data).effects()
    (within,) = folded(SETTINGS, data).effects()
    (clustered,) = folded({**SETTINGS, "unit": "u"}, data).effects()
    assert clustered.se_kind == "jackknife"
    away = [abs((row.estimate or 0) - 1) / (row.std_error or 1) for row in (pooled, within, clustered)]
    assert away[0] > 10
    assert max(away[1:]) < 4


def test_with_units_the_effect_is_the_same_and_totals_weigh_by_probability() -> None:
    data = records(2000)
    means, total = folded({**SETTINGS, "unit": "u", "outcomes": ["y", fa.Total("y")]}, data).effects()
    assert means.estimate == pytest.approx(blocked(data)[0], rel=1e-12)
    assert means.std_error == pytest.approx(blocked(data)[1], rel=0.15)
    weight = np.array([1 / SHARES[s][g] for s, g in zip(data["site"], data["g"], strict=True)])
    sums = [float(data["y"][data["g"] == arm] @ weight[data["g"] == arm]) for arm in "ab"]
    assert total.estimate == pytest.approx(sums[1] - sums[0], rel=1e-9)


def test_a_stratum_with_one_record_of_an_arm_is_no_obstacle() -> None:
    data = records(300)
    few = {"g": ["a", "b", "a"], "y": [90.0, 91.0, 92.0], "site": ["empty"] * 3, "u": [300, 301, 302]}
    trial = folded(SETTINGS, data)
    trial.fold(few)
    (row,) = trial.effects()
    assert row.reliable
    assert (row.std_error or 0) > 0


def test_the_sample_ratio_is_that_of_the_strata() -> None:
    data = records(3000)
    for settings in (SETTINGS, {**SETTINGS, "unit": "u"}, {**SETTINGS, "moments": {}}):
        assert (folded(settings, data).effects().sample_ratio.p_value or 0) > 0.001
    swapped = {**data, "g": np.where(data["site"] == "leeds", "b", data["g"])}
    for settings in (SETTINGS, {**SETTINGS, "unit": "u"}, {**SETTINGS, "moments": {}}):
        with pytest.warns(fa.SampleRatioWarning):
            folded(settings, swapped).effects()


def test_weighted_counts_are_the_same_in_whatever_order_they_were_summed() -> None:
    plan = fa.Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="who", weight="w")
    weights = np.full((2, 32), 5.0)
    weights[:, 0] += 0.5
    observed = [
        sample_ratio_of_weights(plan, weights * (1 + change), np.full((2, 32), 5.0 + 0.5 / 32)).observed
        for change in (-1e-13, 1e-13)
    ]
    assert observed[0] == observed[1] == {"a": 161, "b": 161}


def test_fixed_effects_from_moments() -> None:
    """With moments, the regression has an intercept for each stratum: that on residuals from the strata's means."""
    data = records(2000)
    trial = folded({**SETTINGS, "moments": {"errors": ["HC1"]}}, data)
    row = trial.effects().filter(estimator="regression")[0]
    treated = (data["g"] == "b").astype(float)
    y = data["y"].copy()
    for site in LEVELS:
        at = data["site"] == site
        y[at] -= y[at].mean()
        treated[at] -= treated[at].mean()
    assert row.estimate == pytest.approx(treated @ y / (treated @ treated), rel=1e-10)
    interacted = trial.effects().filter(estimator="interacted")[0]
    assert interacted.estimate == pytest.approx(blocked(data)[0], rel=1e-9)


def test_a_unit_is_assigned_within_its_stratum() -> None:
    plan = fa.Plan(**SETTINGS)
    arms = [plan.assign(unit, "turin") for unit in range(2000)]
    assert 0.75 < arms.count("b") / 2000 < 0.85
    with pytest.raises(fa.PlanError, match="strata"):
        plan.assign(1)


def test_weights_that_few_records_carry_leave_few_degrees_of_freedom() -> None:
    rng = np.random.default_rng(1)
    n = 2000
    w = np.where(np.arange(n) < 12, 100.0, 1.0)
    plan = fa.Plan(name="w", arm="arm", arms={"a": 0.5, "b": 0.5}, weight="w", outcomes=["y", fa.Ratio("y", "x")])
    trial = fa.Trial(plan)
    trial.fold({"arm": np.array(["a", "b"] * (n // 2)), "w": w, "y": rng.normal(5, 1, n), "x": rng.uniform(1, 2, n)})
    worth = w[::2].sum() ** 2 / (w[::2] ** 2).sum()
    for row in trial.effects():
        assert row.df is not None
        assert worth - 1 <= row.df <= 2 * (worth - 1) + 1


def test_the_adjusted_difference_within_strata_leads() -> None:
    rng = np.random.default_rng(2)
    site = rng.choice(["lyon", "leeds"], 2000)
    treated = rng.random(2000) < np.where(site == "lyon", 0.5, 0.3)
    x = rng.normal(size=2000)
    shares = {"lyon": {"a": 0.5, "b": 0.5}, "leeds": {"a": 0.7, "b": 0.3}}
    plan = fa.Plan(
        name="s",
        arm="arm",
        arms={"a": 0.6, "b": 0.4},
        outcomes=["y"],
        covariates=["x"],
        strata=fa.Strata("site", shares),
    )
    trial = fa.Trial(plan)
    y = 100.0 * (site == "lyon") + x + rng.normal(size=2000)
    trial.fold({"arm": np.where(treated, "b", "a"), "site": site, "x": x, "y": y})
    [said] = trial.effects().verdicts()
    assert said.estimator == "adjusted"
    page = " ".join(trial.report().html.split())
    for words in (
        "each stratum weighted by its size",
        "compared with its own probabilities",
        "the strata of ",
        "leeds</bdi> (",
    ):
        assert words in page
    assert "plain difference" not in page


@pytest.mark.parametrize("more", [{}, {"unit": "u"}, {"moments": {}}], ids=["records", "units", "moments"])
def test_probabilities_of_two_strata_that_were_swapped_are_found(more: dict[str, Any]) -> None:
    """The arms' errors cancel in the sum over both strata, which are of the same size."""
    chance = np.random.default_rng(2)
    site = np.repeat(["l", "r"], 2000)
    treated = chance.random(4000) < np.where(site == "l", 0.3, 0.7)
    data = {"g": np.where(treated, "b", "a"), "y": chance.normal(size=4000), "site": site, "u": np.arange(4000)}
    for swapped, state in ((False, "passes"), (True, "look" if "unit" in more else "fails")):
        left, right = (0.7, 0.3) if swapped else (0.3, 0.7)
        strata = fa.Strata("site", {"l": {"a": 1 - left, "b": left}, "r": {"a": 1 - right, "b": right}})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.SampleRatioWarning)
            assert folded({**SETTINGS, "strata": strata, **more}, data).effects().sample_ratio.state == state


@simulated(500, 2000)
def test_sound_strata_seldom_raise_an_alarm(trials: int) -> None:
    """Many strata, some of them tiny: p-values are no smaller than by chance."""
    chance = np.random.default_rng(3)
    shares = chance.choice([0.02, 0.1, 0.5, 0.8], 200)
    plan = fa.Plan(
        **{**SETTINGS, "strata": fa.Strata("s", {str(s): {"a": 1 - p, "b": p} for s, p in enumerate(shares)})}
    )
    sizes = chance.integers(1, 400, 200)
    found = []
    for _ in range(trials):
        treated = chance.binomial(sizes, shares)
        found.append(sample_ratio_of_strata(plan, np.column_stack([sizes - treated, treated]).astype(float)).p_value)
    for level in (0.05, 0.01):
        assert np.mean(np.array(found) < level) < 1.5 * level + 6 / trials


@pytest.mark.filterwarnings("ignore::foldaway.LossWarning")
@pytest.mark.parametrize("covariates", [[], ["x"]])
def test_records_that_lack_an_outcome_count_for_the_sample_ratio_of_units(covariates: list[str]) -> None:
    data = records(3000)
    data["x"] = np.random.default_rng(4).normal(size=3000)
    lost = {**data, "y": np.where((data["g"] == "b") & (np.arange(3000) % 3 > 0), np.nan, data["y"])}
    settings = {**SETTINGS, "unit": "u", "outcomes": [fa.Mean("y", missing="allowed")], "covariates": covariates}
    whole, trial = folded(settings, data), folded(settings, lost)
    expected = whole.effects().sample_ratio
    assert expected.state == "passes"
    assert trial.effects().sample_ratio.p_value == pytest.approx(expected.p_value, rel=1e-9)
    assert fa.Trial.loads(trial.dumps(), key=KEY).effects().sample_ratio.p_value == pytest.approx(
        expected.p_value, rel=1e-9
    )


@pytest.mark.parametrize("unit", [None, "u"])
def test_a_stratum_that_loses_more_is_no_difference_between_arms(unit: str | None) -> None:
    """Arm b has more of the stratum that loses a third of the outcome, in both arms; then it alone loses more."""
    data, chance = records(3000), np.random.default_rng(5).random(3000)
    settings = {**SETTINGS, "unit": unit, "outcomes": [fa.Mean("y", missing="allowed")]}
    turin = (data["site"] == "turin") & (chance < 0.3)
    for lost, state in ((turin, "passes"), (turin | ((data["g"] == "b") & (chance > 0.92)), "fails")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.LossWarning)
            (loss,) = folded(settings, {**data, "y": np.where(lost, np.nan, data["y"])}).effects().losses
        assert loss.state == state


def test_losses_within_strata_are_tested_as_mantel_and_haenszel_do() -> None:
    chance = np.random.default_rng(6)
    both = chance.integers(2, 40, (2, 12)).astype(float)
    lost = chance.binomial(both.astype(int), 0.3).astype(float)
    tables = [np.stack([lost[:, s], both[:, s] - lost[:, s]], axis=1) for s in range(12)]
    whole = [each.sum(axis=1, keepdims=True) for each in (lost, both)]
    loss = loss_of("y", ["a", "b"], whole[0], whole[1], of=(lost, both))
    assert loss.p_value == pytest.approx(StratifiedTable(tables).test_null_odds(correction=False).pvalue, rel=1e-9)


def test_faulty_records_are_not_tested_where_strata_differ() -> None:
    data = records(3000)
    data["y"][(data["site"] == "turin") & (np.arange(3000) % 4 == 0)] = np.nan
    effects = folded({**SETTINGS, "drop_limit": 0.5}, data).effects()
    assert effects.alarm is None
    assert any("is not tested" in note for note in effects.notes)
