"""The compliers' effect: the ratio of two effects, honest also where few more take the treatment up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.door import TOLD
from foldaway.inference.levels import Levels
from foldaway.inference.reading.compliers import complier_effect

KEY = bytes(range(16))
SETTINGS: dict[str, Any] = {
    "name": "compliers",
    "arm": "g",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y"],
    "received": "d",
}


def records(n: int, share: float = 0.4, seed: int = 1, effect: float = 2.0) -> dict[str, Any]:
    """Of those in arm b a share takes the treatment up; these differ from others anyway."""
    chance = np.random.default_rng(seed)
    u = chance.integers(0, n // 2, n)
    per_unit = np.random.default_rng(seed + 1).random((n // 2, 2))
    treated, complier = per_unit[u, 0] < 0.5, per_unit[u, 1] < share
    x = chance.normal(0, 1, n)
    d = (treated & complier).astype(float)
    y = 5 + x + 1.5 * complier + effect * d + chance.normal(0, 1, n)
    return {"g": np.where(treated, "b", "a"), "y": y, "d": d, "x": x, "u": u}


def folded(data: dict[str, Any], **settings: Any) -> fa.Trial:
    trial = fa.Trial(fa.Plan(**{**SETTINGS, **settings}), key=KEY)
    for at in range(0, len(data["y"]), 700):
        trial.fold({name: column[at : at + 700] for name, column in data.items()})
    return trial


def compliers(trial: fa.Trial, **options: Any) -> Effect:
    (row,) = trial.read(**options).filter(estimator="compliers")
    return row


@pytest.mark.parametrize("unit", [None, "u"])
def test_the_effect_is_that_of_an_instrument_on_kept_rows(unit: str | None) -> None:
    """Two-stage least squares with one instrument: cov(g, y) / cov(g, d)."""
    data = records(2000)
    row = compliers(folded(data, unit=unit))
    g = data["g"] == "b"
    expected = (data["y"][g].mean() - data["y"][~g].mean()) / (data["d"][g].mean() - data["d"][~g].mean())
    assert row.estimate == pytest.approx(expected, rel=1e-12)
    assert row.se_kind == "jackknife"
    assert (row.first_stage or 0) > 100
    assert (row.ci_lower or 9) < 2 < (row.ci_upper or 0)


def test_batches_merging_and_saving_change_nothing() -> None:
    data = records(2000)
    parts = [{name: column[part] for name, column in data.items()} for part in (slice(900), slice(900, None))]
    whole, merged = folded(data, unit="u"), folded(parts[0], unit="u") + folded(parts[1], unit="u")
    for other in (merged, fa.Trial.loads(whole.dumps(), key=KEY)):
        one, two = compliers(whole), compliers(other)
        assert (one.estimate, one.std_error, one.ci_lower) == pytest.approx(
            (two.estimate, two.std_error, two.ci_lower), rel=1e-9
        )


def test_covariates_narrow_it_before_and_after_saving() -> None:
    data = records(3000)
    plain, adjusted = compliers(folded(data, unit="u")), folded(data, unit="u", covariates=["x"])
    before = compliers(adjusted)
    adjusted.fix()
    after = compliers(adjusted)
    assert (before.std_error or 9) < 0.9 * (plain.std_error or 0)
    assert (before.estimate, before.std_error) == pytest.approx((after.estimate, after.std_error), rel=0.02)


def test_the_ends_of_the_set_are_where_the_test_turns() -> None:
    chance = np.random.default_rng(3)
    root = chance.normal(0, 0.05, (4, 4))
    doubt, groups = np.full((4, 4), 1 / 60), np.full(4, 60)
    levels = Levels(np.array([5.0, 6.0, 0.1, 0.6]), root @ root.T, doubt, np.full(4, 99), groups)
    effect = complier_effect(levels, 1, 0.95)
    assert effect.ci_lower is not None
    assert effect.ci_upper is not None
    assert effect.df is not None
    for rho in (effect.ci_lower, effect.ci_upper):
        contrast = np.array([-1, 1, rho, -rho])
        statistic = contrast @ levels.value / np.sqrt(contrast @ levels.covariance @ contrast)
        assert abs(statistic) == pytest.approx(stdtrit(effect.df, 0.975), rel=1e-9)
    between = np.array([-1, 1]) @ levels.covariance[2:, 2:] @ np.array([-1, 1])
    assert effect.first_stage == pytest.approx(0.25 / between)


def test_who_reads_the_short_table_is_told_where_the_compliers_are() -> None:
    effects = folded(records(2_000)).effects()
    assert "--all" in effects.to_string()
    assert "--all" not in effects.to_string(all=True)


def test_a_weak_first_stage_is_withheld_with_its_reason() -> None:
    row = compliers(folded(records(600, share=0.0), unit="u"))
    assert (row.reliable, row.estimate, row.std_error) == (False, None, None)
    assert "do not differ in what was received" in (row.why or "")
    data = records(600, share=0.0)
    data["d"] = np.random.default_rng(5).integers(0, 2, 600).astype(float)
    row = compliers(folded(data, unit="u"))
    assert not row.reliable
    assert "first stage's F is" in (row.why or "")
    assert row.ci_lower is None


def test_it_is_told_rounded_and_never_leads() -> None:
    trial = folded(records(2000), unit="u")
    exact, told = compliers(trial), compliers(trial, door=TOLD)
    assert told.estimate != exact.estimate
    assert told.estimate == pytest.approx(exact.estimate, abs=exact.std_error)
    assert told.first_stage == float(f"{exact.first_stage:.1e}")
    assert "compliers" in trial.effects().to_string(all=True)


def test_bad_plans() -> None:
    wrong: list[dict[str, Any]] = [{"moments": {}}, {"release": 1.0, "outcomes": [fa.Mean("y", bounds=(0, 1))]}]
    for more in wrong:
        with pytest.raises(fa.PlanError, match=r"^`received` needs sums by group, and cannot be combined .*\.$"):
            fa.Plan(**{**SETTINGS, **more})
    with pytest.raises(fa.PlanError, match="needs `received`"):
        fa.Plan(**{**SETTINGS, "received": None, "moments": {"estimators": ["compliers"]}})


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("covariates", [[], ["x"]])
def test_where_outcomes_are_missing_both_effects_are_of_the_records_that_have_them(covariates: list[str]) -> None:
    """Half of all units take nothing up, and most of their outcomes are missing: those who are left take up more."""
    data = records(4000)
    lost = (data["d"] == 0) & (np.arange(4000) % 10 > 0) & (data["u"] % 2 == 0)
    data["z"] = data["y"]
    data["y"] = np.where(lost, np.nan, data["y"])
    outcomes = [fa.Mean("y", missing="allowed"), "z"]
    left = {name: column[~lost] for name, column in data.items()}
    trial = folded(data, unit="u", outcomes=outcomes, covariates=covariates)
    for row, those in zip(trial.effects().filter(estimator="compliers"), (left, data), strict=True):
        alone = compliers(folded(those, unit="u", outcomes=[row.outcome], covariates=covariates))
        assert (row.estimate, row.std_error, row.first_stage) == pytest.approx(
            (alone.estimate, alone.std_error, alone.first_stage), rel=1e-9 if not covariates else 1e-4
        )


def test_a_record_that_does_not_say_what_was_received_is_faulty() -> None:
    data = records(200)
    data["d"][3] = np.nan
    with pytest.raises(fa.RecordError, match="d: 1"):
        folded(data, outcomes=[fa.Mean("y", missing="allowed")])


def test_an_outcome_that_is_the_same_in_all_of_an_arm_is_not_told_to_others() -> None:
    data = records(2000)
    data["y"] = np.where((data["g"] == "b") & (data["x"] > 0.5), 1.0, 0.0)
    row = compliers(folded(data, unit="u"), door=TOLD)
    assert row.estimate is None
    assert row.why == "Fewer than 10 of an arm carry this outcome, or fewer than 10 do not."
