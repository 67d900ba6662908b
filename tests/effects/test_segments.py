"""Effects within segments: those of a trial of the level's records alone, however they are batched and merged."""

from __future__ import annotations

from collections.abc import Sequence
from html import unescape
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

import foldaway as fa
from foldaway.effects.door import OWN, TOLD
from foldaway.inference.rounding import coarse_p_value
from trials import known

KEY = bytes(range(16))
SETTINGS: dict[str, Any] = {
    "name": "segments",
    "arm": "g",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y", "z"],
    "segments": [{"column": "country", "levels": ["de", "fr", "us"]}, "platform"],
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
    bare = {**settings, "segments": []}
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
    trial.fix()
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
    assert platforms.summary == f"The effects differ by platform ({platforms.tested})."


def interaction(data: dict[str, Any], column: str, slopes: str = "") -> float:
    """The p-value of the interaction of arms and levels in a regression on kept rows."""
    small, large = (ols(f"y ~ g {by} C({column}){slopes}", data).fit() for by in ("+", "*"))
    return float(anova_lm(small, large)["Pr(>F)"][1])


@pytest.mark.parametrize("settings", [SETTINGS, UNITS, COVARIATES], ids=["records", "units", "covariates"])
@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_many_small_levels_are_compared_as_an_interaction_on_kept_rows(settings: dict[str, Any], apart: float) -> None:
    chance = np.random.default_rng(7)
    level = np.repeat(np.arange(20), 60)
    d = np.tile(np.arange(60) % 2, 20)
    x = chance.normal(5, 2, len(level))
    y = 3 + x + d * apart * np.linspace(-2, 2, 20)[level] + chance.normal(0, 1, len(level))
    names = np.array([f"level {i:02}" for i in range(20)])
    data = {"g": np.array(["a", "b"])[d], "u": np.arange(len(y)), "y": y, "x": x, "country": names[level]}
    one = {**settings, "segments": [{"column": "country", "levels": list(names)}], "outcomes": ["y"]}
    adjusted = "covariates" in settings
    (by,) = folded(one | ({"covariates": ["x"]} if adjusted else {}), [data]).effects().segments
    kept = interaction(data, "country", " + x" if adjusted else "")
    assert by.differ_df == 19
    z = [stats.norm.isf(p) for p in (known(by.differ_p_value), kept)]
    assert z[0] == pytest.approx(z[1], abs=0.7)
    assert by.differs is (kept < 0.05)


def test_levels_too_small_to_be_shown_count_in_the_owners_test_alone() -> None:
    """What others are told of a test depends on no level that is withheld from them."""
    data = records(900)
    tv, app = (np.flatnonzero(data["platform"] == level) for level in ("tv", "app"))
    data["platform"][tv[16:]], data["platform"][app[:100]] = "web", "car"
    data["y"][tv[:16]] += 50 * (data["g"][tv[:16]] == "b")
    levels = ["app", "car", "tv", "web"]
    one = {**UNITS, "segments": [{"column": "platform", "levels": levels}], "outcomes": ["y"]}
    trial = folded(one, [data])
    (own,) = trial.effects().segments
    assert {row.segment for row in own.effects if row.reliable} == {"app", "car", "web"}
    assert own.differ_df == 3
    assert own.differs
    (told,) = trial.read(TOLD).segments
    assert {row.segment for row in told.effects if row.reliable} == {"app", "web"}
    data["y"][tv[:16]] *= 3
    (other,) = folded(one, [data]).read(TOLD).segments
    assert (other.differ_df, other.differ_p_value) == (told.differ_df, told.differ_p_value)
    assert told.differ_df == 1


@pytest.mark.parametrize("units", [None, 300])
def test_totals_by_level_are_withheld_with_what_to_do(units: int | None) -> None:
    """Units assigned within a level are not known: divided by those of the trial, a small level's effect is small."""
    one = {**UNITS, "segments": ["country"], "outcomes": [fa.Total("y", assigned_units=units)]}
    for rounded in (False, True):
        effects = folded(one, [records(900)]).read(TOLD if rounded else OWN)
        assert effects[0].estimate is not None
        (by,) = effects.segments
        assert {(row.estimate, row.p_value) for row in by.effects} == {(None, None)}
        assert all("assigned within each segment" in (row.why or "") for row in by.effects)
        assert by.differs is None
        assert "use a mean of this column" in by.summary
        assert "use a mean of this column" in " ".join(str(effects).split())


def test_what_is_not_shown_clearly_is_said_with_its_smallest_p_value() -> None:
    trial = folded({**UNITS, "segments": ["country"], "outcomes": ["y", "z"]}, [records(600)])
    effects = trial.effects()
    least = min(effects.segments, key=lambda each: known(each.differ_p_value))
    assert not least.differs
    unclear = f"he data do not show clearly that effects differ (smallest {least.tested})."
    printed = " ".join(str(effects).split())
    assert f"By country: t{unclear} · Use --all, or in Python all=True, to see the effects by segment." in printed
    assert f"T{unclear}" in trial.report().html
    assert "The data do not show clearly that the effects differ by country (p = 0." in (
        " ".join(effects.to_string(all=True).split())
    )


def test_it_is_said_what_a_p_value_tests_where_there_is_a_margin_and_which_are_adjusted() -> None:
    guardrail = fa.Mean("z", better="lower", margin=2.5)
    trial = folded({**UNITS, "segments": ["country"], "outcomes": ["y", fa.Mean("x"), guardrail]}, [records(600)])
    said = "z: p is for the plan's question. If it is small, the arm is not worse than the control by"
    assert " ".join(trial.effects().to_string(all=True).split()).count(said) == 1
    page = unescape(trial.report().html)
    assert page.count(said) == 2  # below its numbers, and below those by segment
    assert page.count("adjusted p</th>") == 4  # of the two outcomes that are corrected together, whole and by segment


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_others_are_told_of_a_difference_only_where_there_is_one() -> None:
    """P-values are corrected first and cut off after: one of 0.0199 for three tests is not below 0.05."""
    settings = {**SETTINGS, "outcomes": ["y", "z", "x"], "segments": ["country"]}
    for seed in range(6):
        trial = folded(settings, [records(300, seed)])
        for exact, told in zip(trial.effects().segments, trial.read(TOLD).segments, strict=True):
            assert told.differ_p_value == coarse_p_value(exact.differ_p_value)
            assert told.differ_p_adjusted == coarse_p_value(exact.differ_p_adjusted)
            assert told.differs is exact.differs is not None


def test_few_are_withheld_and_so_is_a_neighbour_where_others_read() -> None:
    data = records(900)
    data["platform"][data["platform"] == "tv"] = "web"
    data["platform"][:15] = "tv"
    effects = folded(UNITS, [data]).effects()
    by = next(each for each in effects.segments if each.column == "platform")
    assert [row.segment for row in by.effects if row.reliable] == ["web", "app"]
    (few,) = (row for row in by.effects if row.segment == "")  # too few to be named
    assert few.estimate is few.std_error is few.p_value is None
    assert few.why == "An arm has fewer than 10 units in it."
    rounded = folded(UNITS, [data]).read(TOLD)
    told = next(each for each in rounded.segments if each.column == "platform")
    assert sum(row.reliable for row in told.effects) == 1


@pytest.mark.parametrize("unit", [None, "u"])
def test_beside_a_small_level_the_next_smallest_is_withheld_and_not_the_first_by_name(unit: str | None) -> None:
    """Two records of one country must not hide half of all traffic."""
    sizes = {"de": 8_000, "fr": 5_000, "lu": 2, "us": 3_000}
    country = np.random.default_rng(1).permutation(np.repeat(list(sizes), list(sizes.values())))
    data = {**records(len(country)), "country": country}
    data["g"] = np.array(["a", "b"])[np.arange(len(country)) % 2]  # both arms have all groups in every large level
    data["u"] = np.arange(len(country))
    settings = {**SETTINGS, "unit": unit, "segments": [{"column": "country", "levels": list(sizes)}]}
    trial = folded(settings, [data])
    shown = {row.segment for each in trial.read(TOLD).segments for row in each.effects if row.reliable}
    assert shown == {"de", "fr"}


@pytest.mark.parametrize("settings", [SETTINGS, UNITS], ids=["records", "units"])
def test_what_is_withheld_from_others_is_that_of_many(settings: dict[str, Any]) -> None:
    """Whoever subtracts all levels that are told from the whole has the effect of no few."""
    data = records(900)
    data["country"] = np.where(data["country"] == "us", "de", data["country"])
    levels = ["de", "fr", "gb", "us"]
    data["country"][[np.flatnonzero(data["g"] == arm)[i] for arm in "ab" for i in (0, 1)]] = ["gb", "us"] * 2
    effects = folded({**settings, "segments": [{"column": "country", "levels": levels}, "platform"]}, [data]).read(TOLD)
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
    assert "Secretville" not in trial.effects().to_json()
    assert "Secretville" not in repr(trial.tallies)
    assert b"Secretville" not in trial.exchanged()  # rich or not
    assert "Secretville" not in trial.told().to_json()
    assert b"Secretville" not in trial.dumps()


@pytest.mark.parametrize("settings", [SETTINGS, UNITS, COVARIATES], ids=["records", "units", "covariates"])
def test_the_name_of_a_level_is_learnt_once_it_is_common_from_the_next_record_that_has_it(settings: Any) -> None:
    """Its earlier records count for it, wherever they were folded under the same key."""
    data = records(900)
    data["u"] = np.arange(900) % 500
    data["g"] = np.array(["a", "b"])[data["u"] % 2]
    data["platform"] = np.array(["app", "web"])[data["u"] // 2 % 2].astype(object)
    rare = np.flatnonzero(data["platform"] == "app")[:40]
    data["platform"][rare] = "kiosk"
    rest = np.setdiff1d(np.arange(900), rare)
    one, two = (folded(settings, [part(data, half)]) for half in (rare[:14], rare[14:28]))
    for few in (one, two, one + two):  # nobody has said the name since it is common
        assert "kiosk" not in repr(few.tallies) + few.effects().to_json()
    whole = fa.Trial.loads((one + two).exchanged(), key=KEY) + folded(settings, [part(data, rest)])
    assert "kiosk" not in whole.effects().to_json()
    whole.fold(part(data, rare[28:]))
    by = next(each for each in whole.effects().segments if each.column == "platform")
    assert {row.segment: row.n for row in by.effects if row.n}["kiosk"] == len(rare)
    listed = [settings["segments"][0], {"column": "platform", "levels": ["app", "web", "kiosk"]}]
    exact = folded({**settings, "segments": listed}, [data])
    theirs = next(each for each in exact.effects().segments if each.column == "platform")
    ours, theirs_too = ({row.segment: row.estimate for row in each.effects if row.reliable} for each in (by, theirs))
    assert ours == pytest.approx(theirs_too)


def test_trials_under_different_keys_cannot_be_merged_where_levels_have_marks() -> None:
    data = records(300)
    one, two = (fa.Trial(fa.Plan(**SETTINGS), key=bytes([key]) * 16) for key in (1, 2))
    one.fold(part(data, slice(150)))
    two.fold(part(data, slice(150, 300)))
    with pytest.raises(fa.StateError, match="different keys"):
        one.merge(two)


def test_levels_that_few_have_in_common_leave_no_name_in_a_state() -> None:
    data = records(900)
    data["platform"] = data["platform"].astype(object)
    data["platform"][:5] = [f"name-{i}" for i in range(5)]
    trial = folded(UNITS, [data])
    state = trial.dumps()
    assert b"name-" not in state
    assert b"web" in state
    by = next(each for each in trial.effects().segments if each.column == "platform")
    assert (by.effects[-1].segment, by.effects[-1].n) == ("", 5)
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
        effects = folded(COVARIATES, [data]).read(TOLD if rounded else OWN)
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
    assert "y: effect of b against a by platform" in page
    assert page.index("Whether to trust it</h2>") < page.index("Does it work for everyone?</h2>")
    assert "&lt;q&gt;" in page
    assert "<q>" not in page


def test_the_report_draws_the_ten_largest_levels_at_once_and_the_others_on_an_axis_of_their_own() -> None:
    data = records(6000)
    share = np.arange(13, 0, -1)
    data["platform"] = np.random.default_rng(4).choice([f"p{i:02}" for i in range(13)], 6000, p=share / share.sum())
    one = {**UNITS, "segments": ["platform"], "outcomes": ["y"]}
    trial = folded(one, batched(data, 1000))
    (by,) = trial.effects().segments
    sizes = [known(row.n) for row in by.effects if row.segment]
    assert sizes == sorted(sizes, reverse=True)
    page = trial.report().html
    section = page[page.index("Does it work for everyone?</h2>") : page.index("What was kept</h2>")]
    at_once, _, more = section.partition(f"<summary>{len(by.effects) - 10} more</summary>")
    drawn = [part.count('class="plot"') for part in (at_once, more)]
    assert drawn == [10, len(by.effects) - 10]
    assert [part.count('class="axis"') for part in (at_once, more)] == [1, 1]
    for row in by.effects[:10]:
        assert f", {row.segment}, " in at_once
