"""Effects within segments: those of a trial of the level's records alone, however they are batched and merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.inference.rounding import coarse_p_value
from trials import known

KEY = bytes(range(16))
SETTINGS: dict[str, Any] = {
    "name": "segments",
    "arm": "g",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y", "z"],
    "segments": ["country", "platform"],
    "levels": {"country": ["de", "fr", "us"]},
}
UNITS = {**SETTINGS, "unit": "u"}
COVARIATES = {**UNITS, "covariates": ["x", "country"]}


def records(n: int, seed: int = 1, slope: float = 0.0) -> dict[str, np.ndarray[Any, Any]]:
    """Records of which those on the web have an effect that is larger by `slope`."""
    chance = np.random.default_rng(seed)
    u = chance.integers(0, n // 3, n)
    g = np.array(["a", "b"])[np.random.default_rng(seed + 1000).integers(0, 2, n)[u]]
    platform = chance.choice(["app", "web", "tv"], n, p=[0.4, 0.55, 0.05])
    x = chance.normal(5, 2, n)
    y = 3 + x + (g == "b") * (1 + slope * (platform == "web")) + chance.normal(0, 1, n)
    return {
        "g": g, "y": y, "z": chance.poisson(2, n), "x": x, "u": u,
        "country": chance.choice(["de", "fr", "us"], n), "platform": platform,
    }  # fmt: skip


def part(data: dict[str, Any], of: Any) -> dict[str, Any]:
    return {name: column[of] for name, column in data.items()}


def folded(settings: dict[str, Any], batches: Sequence[dict[str, Any]]) -> fa.Trial:
    trial = fa.Trial(fa.Plan(**settings), key=KEY)
    for batch in batches:
        trial.fold(batch)
    return trial


def batched(data: dict[str, Any], size: int) -> list[dict[str, Any]]:
    return [part(data, slice(at, at + size)) for at in range(0, len(data["y"]), size)]


def numbers(effects: fa.Effects) -> list[Any]:
    return [
        (each.column, row.outcome, row.segment, row.n, row.estimate, row.std_error, row.p_adjusted, each.differ_p_value)
        for each in effects.segments
        for row in each.effects
    ]


def assert_same(one: fa.Effects, other: fa.Effects) -> None:
    assert len(one.segments) == len(other.segments) > 0
    for a, b in zip(numbers(one), numbers(other), strict=True):
        assert a[:4] == b[:4]
        assert a[4:] == pytest.approx(b[4:], rel=1e-9)


@pytest.mark.parametrize("settings", [SETTINGS, UNITS], ids=["records", "units"])
def test_a_level_is_a_trial_of_its_own_records(settings: dict[str, Any]) -> None:
    data = records(3000)
    effects = folded(settings, batched(data, 700)).effects()
    bare = {**settings, "segments": [], "levels": {}}
    kind = "jackknife" if "unit" in settings else "welch"
    for by in effects.segments:
        for row in by.effects:
            alone = folded(bare, [part(data, data[by.column] == row.segment)]).effects()
            (same,) = alone.filter(outcome=row.outcome, estimator="difference", se_kind=kind)
            assert (row.n, row.n_arm, row.se_kind) == (same.n, same.n_arm, kind)
            assert (row.estimate, row.std_error, row.df, row.anytime_ci_lower) == pytest.approx(
                (same.estimate, same.std_error, same.df, same.anytime_ci_lower), rel=1e-9
            )


@pytest.mark.parametrize("settings", [SETTINGS, UNITS, COVARIATES], ids=["records", "units", "covariates"])
def test_batches_merging_and_saving_change_nothing(settings: dict[str, Any]) -> None:
    data = records(3000)
    if "covariates" in settings:
        settings = {**settings, "coefficients": {
            "center": {"x": 5.0, "country[fr]": 0.3, "country[us]": 0.3},
            "slopes": {name: {"x": 1.0, "country[fr]": 0.1, "country[us]": 0.0} for name in ("y", "z")},
        }}  # fmt: skip
    whole = folded(settings, [data])
    in_batches = folded(settings, batched(data, 250))
    merged = folded(settings, batched(part(data, slice(1000)), 300)) + folded(settings, [part(data, slice(1000, None))])
    for other in (in_batches, merged, fa.Trial.loads(in_batches.dumps(), key=KEY)):
        assert_same(whole.effects(), other.effects())


def test_rich_trials_tell_what_they_will_tell_once_saved() -> None:
    data = records(4000, slope=1.0)
    trial = folded(COVARIATES, batched(data, 900))
    before = trial.effects()
    trial.dumps()
    after = trial.effects()
    assert {row.estimator for by in after.segments for row in by.effects} == {"adjusted"}
    for a, b in zip(numbers(before), numbers(after), strict=True):
        assert a[4:6] == pytest.approx(b[4:6], rel=0.01)  # coefficients are told to three digits


def test_whether_effects_differ() -> None:
    """The test's p-values are uniform where effects are alike, and small where they are not."""
    one = {**UNITS, "segments": ["country"], "outcomes": ["y"]}
    alike = [folded(one, [records(600, seed)]).effects().segments[0].differ_p_value for seed in range(50)]
    assert all(p is not None for p in alike)
    assert sum(p < 0.05 for p in alike if p is not None) <= 6
    assert 15 <= sum(p < 0.5 for p in alike if p is not None) <= 35
    apart = folded(UNITS, [records(3000, slope=1.0)]).effects().segments
    platforms = next(by for by in apart if (by.column, by.outcome) == ("platform", "y"))
    assert platforms.differ_p_value is not None
    assert platforms.differ_p_value < 1e-4
    assert platforms.summary == f"The effects differ between levels of platform ({platforms.tested})."


def test_what_is_not_shown_clearly_is_said_with_its_smallest_p_value() -> None:
    trial = folded({**UNITS, "segments": ["country"], "outcomes": ["y", "z"]}, [records(600)])
    effects = trial.effects()
    least = min(effects.segments, key=lambda each: known(each.differ_p_value))
    assert not least.differs
    unclear = f"he data do not show clearly that effects differ between levels (smallest {least.tested})."
    printed = " ".join(str(effects).split())
    assert f"By country: t{unclear} · Use --all, or in Python all=True, to see the effects by level." in printed
    assert f"T{unclear}" in trial.report().html
    assert "The data do not show clearly that the effects differ between levels of country (p = 0." in (
        " ".join(effects.to_string(all=True).split())
    )


def test_it_is_said_what_a_p_value_tests_where_there_is_a_margin_and_which_are_adjusted() -> None:
    guardrail = fa.Mean("z", better="lower", margin=2.5)
    trial = folded({**UNITS, "segments": ["country"], "outcomes": ["y", fa.Mean("x"), guardrail]}, [records(600)])
    said = "z: a small p shows that the arm is not worse than the control by more than 2.5, and not"
    assert " ".join(trial.effects().to_string(all=True).split()).count(said) == 1
    page = trial.report().html
    assert page.count(said) == 2  # below its numbers, and below those by segment
    assert page.count("p allows for several comparisons, except for guardrails.") == 1


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_others_are_told_of_a_difference_only_where_there_is_one() -> None:
    """P-values are corrected first and cut off after: one of 0.0199 for three tests is not below 0.05."""
    settings = {**SETTINGS, "outcomes": ["y", "z", "x"], "segments": ["country"]}
    for seed in range(6):
        trial = folded(settings, [records(300, seed)])
        for exact, told in zip(trial.effects().segments, trial.effects(rounded=True).segments, strict=True):
            assert told.differ_p_value == coarse_p_value(exact.differ_p_value)
            assert told.differ_p_adjusted == coarse_p_value(exact.differ_p_adjusted)
            assert told.differs is exact.differs is not None


def test_few_are_withheld_and_so_is_a_neighbour_where_others_read() -> None:
    data = records(900)
    data["platform"][data["platform"] == "tv"] = "web"
    data["platform"][:15] = "tv"
    effects = folded(UNITS, [data]).effects()
    by = next(each for each in effects.segments if each.column == "platform")
    assert [row.segment for row in by.effects if row.reliable] == ["app", "web"]
    (few,) = (row for row in by.effects if row.segment == "tv")
    assert few.estimate is few.std_error is few.p_value is None
    assert few.why == "An arm has fewer than 10 units in it."
    rounded = folded(UNITS, [data]).effects(rounded=True)
    told = next(each for each in rounded.segments if each.column == "platform")
    assert sum(row.reliable for row in told.effects) == 1


@pytest.mark.parametrize("settings", [SETTINGS, UNITS], ids=["records", "units"])
def test_what_is_withheld_from_others_is_that_of_many(settings: dict[str, Any]) -> None:
    """Whoever subtracts all levels that are told from the whole has the effect of no few."""
    data = records(900)
    data["country"] = np.where(data["country"] == "us", "de", data["country"])
    levels = ["de", "fr", "gb", "us"]
    data["country"][[np.flatnonzero(data["g"] == arm)[i] for arm in "ab" for i in (0, 1)]] = ["gb", "us"] * 2
    effects = folded({**settings, "levels": {"country": levels}}, [data]).effects(rounded=True)
    rows = {row.segment: row for each in effects.segments if each.column == "country" for row in each.effects}
    assert [level for level in levels if rows[level].reliable] == ["de"]
    assert [rows[level].n for level in ("fr", "gb", "us")] == [None] * 3
    assert rows["fr"].n_arm is rows["fr"].n_control is rows["gb"].n_arm is None
    assert rows["fr"].why is not None
    assert "smaller levels" in rows["fr"].why
    assert fa.Effects.from_json(effects.to_json()).segments == effects.segments
    assert "gb" in effects.to_string(all=True)


@pytest.mark.parametrize("settings", [SETTINGS, UNITS, COVARIATES], ids=["records", "units", "covariates"])
def test_a_level_that_few_have_is_not_named_to_others(settings: dict[str, Any]) -> None:
    data = records(900)
    data["platform"] = data["platform"].astype(object)
    data["platform"][:3] = "Secretville"
    if settings is not SETTINGS:  # many records of one person in each arm are one person's still
        few = [i for arm in "ab" for i in [np.flatnonzero(data["g"] == arm)[0]] * 12]
        data = {name: np.concatenate([column, column[few]]) for name, column in data.items()}
        data["platform"][900:] = "Secretville"
    trial = folded(settings, [data])
    assert "Secretville" in trial.effects().to_json()
    assert "Secretville" not in trial.effects(rounded=True).to_json()
    assert "Secretville" not in trial.tell().to_json()
    assert b"Secretville" not in trial.dumps()


def test_levels_that_few_have_in_common_leave_no_name_in_a_state() -> None:
    data = records(900)
    data["platform"] = data["platform"].astype(object)
    data["platform"][:5] = [f"name-{i}" for i in range(5)]
    trial = folded(UNITS, [data])
    state = trial.dumps()
    assert b"name-" not in state
    assert b"web" in state
    by = next(each for each in trial.effects().segments if each.column == "platform")
    assert (by.effects[0].segment, by.effects[0].n) == ("", 5)
    assert "(others)" in trial.effects().to_string(all=True)


@pytest.mark.parametrize("settings", [UNITS, COVARIATES], ids=["units", "covariates"])
def test_a_trial_is_saved_before_any_level_is_common(settings: dict[str, Any]) -> None:
    trial = folded(settings, [records(20)])
    loaded = fa.Trial.loads(trial.dumps(), key=KEY)
    by = next(each for each in loaded.effects().segments if each.column == "platform")
    assert [(row.segment, row.n) for row in by.effects] == [("", 20)]


def test_many_levels_become_one() -> None:
    data = records(2000)
    data["platform"] = np.array([f"p{i % 500:03}" for i in range(2000)])
    trial = folded(UNITS, batched(data, 100))
    by = next(each for each in trial.effects().segments if each.column == "platform")
    assert len(by.effects) <= 100
    assert sum(row.n or 0 for row in by.effects) == 2000


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("n", [1, 20])
def test_first_records_of_one_arm_have_no_effects_within_segments(n: int) -> None:
    data = part(records(60), slice(n))
    data["g"] = np.full(n, "a")
    for rounded in (False, True):
        effects = folded(COVARIATES, [data]).effects(rounded=rounded)
        assert not any(row.reliable for each in effects.segments for row in each.effects)
        assert {each.differ_p_value for each in effects.segments} == {None}


def test_json_keeps_segments() -> None:
    effects = folded(UNITS, [records(900)]).effects()
    assert numbers(fa.Effects.from_json(effects.to_json())) == numbers(effects)


def test_a_record_without_a_level_is_faulty() -> None:
    data: dict[str, Any] = records(60)
    data["country"][3] = "uk"
    with pytest.raises(fa.RecordError, match=r"country.*unknown level"):
        folded(UNITS, [data])
    data["country"][3] = "de"
    data["platform"] = [None, *data["platform"][1:].tolist()]
    with pytest.raises(fa.RecordError, match=r"platform.*null"):
        folded(UNITS, [data])


def test_the_report_shows_segments() -> None:
    data = records(900)
    data["platform"][:30] = "<q>"
    page = folded(UNITS, [data]).report().html
    assert "Does it work for everyone?" in page
    assert "Effect against a within each level of platform" in page
    assert "&lt;q&gt;" in page
    assert "<q>" not in page
