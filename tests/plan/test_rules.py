"""A wrong plan gets one sentence for each fault."""

from __future__ import annotations

import datetime
import math
import re
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.plan import Bootstrap, Information
from foldaway.plan.part import settings_of
from foldaway.plan.parts import MOST_REPLICATES
from foldaway.plan.rules import MOST_ARMS, MOST_COLUMNS
from plans import CALIBRATED, CUT, FEDERATED, FULL, LOOKED, PARTS, RELEASED, SMALL, WITHIN, in_parts

EVERY = {s.name: s for part in (fa.Plan, *PARTS.values(), *WITHIN) for s in settings_of(part).values()}
APART = [s.name for s in EVERY.values() if s.part is not None]
MUST_BE = {name: setting.must_be for name, setting in EVERY.items()}


def faults(**settings: Any) -> list[str]:
    with pytest.raises(fa.PlanError) as caught:
        fa.Plan(**in_parts({**FULL, **settings}))
    return str(caught.value).split("\n")


def halves(count: int) -> dict[str, float]:
    return {f"arm{i}": 1 / count for i in range(count)}


REPLICATES = "`moments.bootstrap.replicates` must be a whole number from 2 to 100,000"

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "empty name": ({"name": ""}, "`name` must be 1 to 100"),
    "long name": ({"name": "n" * 101}, "`name` must be 1 to 100"),
    "path as name": ({"name": "../plan"}, "`name` must be 1 to 100"),
    "line in name": ({"name": "plan\n"}, "`name` must be 1 to 100"),
    "one arm": ({"arms": {"control": 0.9999999999}}, "`arms` must have two to"),
    "many arms": ({"arms": halves(MOST_ARMS + 1)}, "`arms` must have two to"),
    "arm without name": ({"arms": {"": 0.5, "b": 0.5}}, "`arms` has an arm without a name"),
    "bounds of levels": (
        {"covariates": [{"column": "age", "levels": ["a", "b"], "bounds": [0, 1]}]},
        "'age' has levels, and so no bounds",
    ),
    "bounds the wrong way": (
        {"covariates": [{"column": "age", "bounds": [1, 0]}]},
        "the bounds of 'age' must be two numbers, the lower one first",
    ),
    "NaN bound": ({"outcomes": [{"column": "y", "bounds": [0, math.nan]}]}, "the bounds of 'y' must be two numbers"),
    "infinite bound": ({"outcomes": [{"column": "y", "bounds": [0, math.inf]}]}, "the bounds of 'y' must be"),
    "bounds in two ways": (
        {"outcomes": [{"column": "y", "bounds": [0, 1]}, {"column": "y", "name": "z", "bounds": [0, 2]}]},
        "the bounds of 'y' are given in two ways: give them once",
    ),
    "beyond nothing": ({"outcomes": [{"column": "y", "beyond": "refuse"}]}, "`beyond` of 'y' needs `bounds`"),
    "zero": ({"arms": {"a": 0.0, "b": 0.5, "c": 0.5}}, "the probability of 'a' must lie between 0 and 1"),
    "all": ({"arms": {"a": 1.0, "b": 0.5}}, "the probability of 'a' must lie"),
    "negative": ({"arms": {"a": -0.5, "b": 0.5, "c": 0.5}}, "the probability of 'a' must lie"),
    "NaN": ({"arms": {"a": math.nan, "b": 0.5}}, "the probability of 'a' must lie"),
    "infinite": ({"arms": {"a": math.inf, "b": -math.inf}}, "the probability of 'a', 'b' must lie"),
    "sum": ({"arms": {"a": 0.5, "b": 0.4}}, "add up to 0.9 instead of 1"),
    "sum by a little": ({"arms": {"a": 0.5, "b": 0.50000001}}, "add up to 1.00000001 instead of 1"),
    "no outcome": ({"outcomes": []}, "`outcomes` must name at least one"),
    "column twice": ({"outcomes": ["y", "y"]}, "two outcomes are called 'y': give one of them another `name`"),
    "two roles": ({"weight": "age"}, r"the column 'age' is used more than once \(weight, covariates\)"),
    "arm as unit": ({"unit": "variant"}, r"the column 'variant' is used more than once \(arm, unit\)"),
    "arm as cluster": (
        {"cluster": "variant", "records_per_unit": "many"},
        r"the column 'variant' is used more than once \(arm, cluster\)",
    ),
    "clusters of both arms": (
        {"cluster": "village", "records_per_unit": "together"},
        "CR errors assume that every cluster is in one arm",
    ),
    "column without name": ({"weight": ""}, "`weight` has a column without a name"),
    "covariate without name": ({"covariates": [*FULL["covariates"], ""]}, "`covariates` has a column without a name"),
    "many columns": (  # with the five regressors, one too many
        {"outcomes": [f"y{i}" for i in range(MOST_COLUMNS - 4)]},
        f"the plan has {MOST_COLUMNS + 1} columns, .* the limit is {MOST_COLUMNS}",
    ),
    "one level": ({"covariates": [{"column": "age", "levels": ["1"]}]}, "the levels of 'age' must be at least two"),
    "no level": ({"segments": [{"column": "age", "levels": []}]}, "the levels of 'age' must be at least two"),
    "level twice": (
        {"covariates": [{"column": "age", "levels": ["1", "2", "1"]}]},
        "the levels of 'age' contain one of them twice",
    ),
    "segment of moments": ({"segments": ["place"]}, "`segments` are read from sums by group"),
    "stratum of other arms": (
        {
            "strata": {"column": "s", "probabilities": {"x": {"control": 0.5, "gold": 0.5}}},
            "estimators": ["regression"],
        },
        "the stratum 'x' must have a probability for each of control, gold, silver",
    ),
    "half a character": ({"weight": "\ud800"}, r"not contain control characters, but '\\ud800' does"),
    "escape code": ({"arms": {"\x1b[31m": 0.5, "b": 0.5}}, r"not contain control characters, but '\\x1b\[31m' does"),
    "line in level": (
        {"covariates": [{"column": "age", "levels": ["1", "2\u2028"]}]},
        "not contain control characters",
    ),
    "no estimator": ({"estimators": ["ols"]}, "`moments.estimators` has 'ols'; the estimators are .*ipw"),
    "no kind of error": ({"errors": ["HC9"]}, "`moments.errors` has 'HC9'; the kinds are .*CR1"),
    "kind of error twice": ({"errors": ["HC1", "HC1"]}, "`moments.errors` has 'HC1' more than once"),
    "clustered errors without whole units": (
        {"errors": ["CR1"], "records_per_unit": "many"},
        "'CR1' needs `records_per_unit",
    ),
    "HC2 with weights": ({"errors": ["HC1", "HC2"], "weight": "w"}, "'HC2' needs records without weights"),
    "nothing but HC2": (
        {"errors": ["HC2"], "weight": None, "bootstrap": None},
        "no kind in `moments.errors` serves 'regression': add another kind, for example HC1",
    ),
    "estimator twice": ({"estimators": ["ipw", "ipw"]}, "`moments.estimators` has 'ipw' more than once"),
    "needs covariates": (
        {"covariates": [], "estimators": ["interacted"]},
        "the estimator 'interacted' needs `covariates`",
    ),
    "low confidence": ({"confidence": 0.49}, "`confidence` must be a number from 0.5 to below 1"),
    "percent": ({"confidence": 95}, "`confidence` must be a number from 0.5 to below 1"),
    "certainty": ({"confidence": 1.0}, "`confidence` must be a number from 0.5 to below 1"),
    "NaN confidence": ({"confidence": math.nan}, "`confidence` must be a number from 0.5 to below 1"),
    "no unit": ({"unit": None, "records_per_unit": "together"}, '`records_per_unit = "together"` needs `unit`'),
    "expected zero": ({"expected_units": 0}, "`expected_units` must be a whole number from 1 to"),
    "expected huge": ({"expected_units": 10**400}, "`expected_units` must be a whole number from 1 to"),
    "one replicate": ({"bootstrap": 1}, REPLICATES),
    "negative replicates": (
        {"bootstrap": -5},
        REPLICATES,
    ),
    "many replicates": (
        {"bootstrap": MOST_REPLICATES + 1},
        REPLICATES,
    ),
    "no cohort": ({"cohort": 0}, "`privacy.cohort` must be a whole number from 1 to"),
    "huge cohort": ({"cohort": 10**400}, "`privacy.cohort` must be a whole number from 1 to"),
    "none in a cell": ({"smallest_cell": 0}, "`privacy.smallest_cell` must be a whole number from 1 to"),
    "too many in a cell": ({"smallest_cell": 10**10}, "`privacy.smallest_cell` must be a whole number from 1 to"),
    "federated bootstrap": (
        {"baseline": [], "federated": "one-message", "errors": [], "records_per_unit": "together"},
        "`moments.bootstrap` cannot be combined with `federated`",
    ),
}

RELEASED_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "moments": ({"moments": {}}, "adds noise to sums"),
    "devices that send moments": (
        {"federated": "delta", "unit": None, "records_per_unit": "many", "release": 1.0},
        'if there are devices, choose their mode "sums"',
    ),
    "without bounds": ({"outcomes": ["z"]}, "`release` needs `bounds` for every column: add those of 'z'"),
    "without coefficients": (
        {"covariates": [{"column": "x", "bounds": [0, 1]}]},
        "can adjust only by `coefficients` from before the trial",
    ),
    "weights": ({"weight": "w"}, "leave out `weight`"),
    "more groups than there are": (
        {"expected_units": 320, "release": {"epsilon": 1.0, "unit_records": 5, "noisy_groups": 32}},
        "no more than the 16 groups",
    ),
    "records that nobody can count": (
        {"records_per_unit": "many"},
        'and `records_per_unit = "together"` need each other',
    ),
    "records that nobody limits": ({"release": 1.0}, 'and `records_per_unit = "together"` need each other'),
}


@pytest.mark.parametrize("case", RELEASED_CASES)
def test_each_fault_of_a_release_has_its_sentence(case: str) -> None:
    settings, sentence = RELEASED_CASES[case]
    with pytest.raises(fa.PlanError) as told:
        fa.Plan(**{**RELEASED, **settings})
    (fault,) = str(told.value).splitlines()
    assert re.search(sentence, fault)
    assert fault.endswith(".")


FEDERATED_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "no deadline": ({"reply_deadline": 0}, "`federated.reply_deadline` must be a number of seconds"),
    "endless deadline": (
        {"reply_deadline": math.inf},
        "`federated.reply_deadline` must be a number of seconds",
    ),
    "NaN deadline": ({"reply_deadline": math.nan}, "`federated.reply_deadline` must be a number of seconds"),
    "no share": ({"reply_share": 0}, "`federated.reply_share` must be a number above 0"),
    "percent": ({"reply_share": 90}, "`federated.reply_share` must be a number above 0"),
    "NaN share": ({"reply_share": math.nan}, "`federated.reply_share` must be a number above 0"),
    "no retention": ({"retention": 59}, "`privacy.retention` must be a number of seconds from 60 to"),
    "endless retention": ({"retention": math.inf}, "`privacy.retention` must be a number of seconds from 60 to"),
    "deltas with covariates": ({"federated": "delta"}, "only sums of outcomes"),
    "deltas with weights": (
        {"federated": "delta", "covariates": [], "weight": "w"},
        "counts records: leave out `weight`",
    ),
    "sums without coefficients": ({"federated": "sums"}, "`foldaway plan calibrate`"),
    "sums with weights": (
        {"federated": "sums", "covariates": [], "weight": "w"},
        "counts records: leave out `weight`",
    ),
    "a release with sites": (
        {
            "federated": "sums",
            "covariates": [],
            "unit": "u",
            "release": 1.0,
            "outcomes": [{"column": "y", "bounds": [0, 1]}],
        },
        "which a site cannot do for its units: leave out `release`",
    ),
    "moments of sums": ({"federated": "sums", "covariates": [], "moments": {}}, "keeps sums: leave out `moments`"),
    "errors of sums": (
        {"moments": {"errors": ["CR1"]}},
        "it has CR0 and CR1 errors by device",
    ),
    "clusters of devices": ({"cluster": "village"}, "a federated plan cannot have `cluster`"),
    "sites that reply": ({"unit": "u", "records_per_unit": "together"}, "in a federated plan, `unit` is for sites"),
    "units that are spread": (
        {"unit": "u", "federated": "one-message"},
        "in a federated plan, `unit` is for sites",
    ),
}


@pytest.mark.parametrize("case", FEDERATED_CASES)
def test_each_fault_of_a_federated_plan_has_its_sentence(case: str) -> None:
    settings, sentence = FEDERATED_CASES[case]
    with pytest.raises(fa.PlanError) as told:
        fa.Plan(**in_parts({**FEDERATED, **settings}))
    (fault,) = str(told.value).splitlines()
    assert re.search(sentence, fault)
    assert fault.endswith(".")


def test_how_long_devices_may_keep_records_needs_devices() -> None:
    with pytest.raises(fa.PlanError, match=r"^`privacy\.retention` needs `federated`\.$"):
        fa.Plan(**SMALL, privacy={"retention": 3600})


def test_each_fault_has_its_sentence() -> None:
    for case, (settings, sentence) in CASES.items():
        (fault,) = faults(**settings)
        assert re.search(sentence, fault), case
        assert fault.endswith("."), case


NOT_TEXT: list[Any] = [None, 1, 1.5, True, b"y", ["y"], {"y": 1}, datetime.date(2020, 1, 1), object()]
NOT_NAMES: list[Any] = [None, 1, "y", b"y", {"y"}, {"y": 1}, [1], ["y", None], [["y"]], range(2), object()]
NOT_LISTS: list[Any] = [each for each in NOT_NAMES if not isinstance(each, list)]
NOT_NUMBERS: list[Any] = [None, "0.9", True, [0.9], 10**400, 1j, object()]
NOT_WHOLE: list[Any] = [None, 1.5, 100.0, "100", True, [1], object()]

WRONG_TYPES: dict[str, list[Any]] = {
    "name": NOT_TEXT,
    "arm": NOT_TEXT,
    "arms": [None, 0.5, "ab", ["a", "b"], [("a", 0.5)], {1: 0.5, 2: 0.5}, {"a": "0.5"}, {"a": None}, {"a": 10**400}],
    "outcomes": NOT_NAMES,
    "covariates": NOT_LISTS,
    "segments": NOT_LISTS,
    "baseline": NOT_LISTS,
    "estimand.population": NOT_TEXT[1:],
    "estimand.treatment": NOT_TEXT[1:],
    "estimand.intercurrent_events": NOT_TEXT[1:],
    "estimand.summary": NOT_TEXT[1:],
    "flow.assessed": [*NOT_WHOLE[1:]],
    "flow.excluded": [None, 1, "x", ["x"], {"x": "1"}],
    "received": NOT_TEXT[1:],
    "strata.column": NOT_TEXT,
    "strata.levels": [1, "ab", [1, 2], {"a": "b"}, {"a", "b"}],
    "strata.probabilities": [None, 1, "x", ["x"], {"x": 1}, {"x": {"a": "1"}}],
    "unit": NOT_TEXT[1:],
    "cluster": NOT_TEXT[1:],
    "weight": NOT_TEXT[1:],
    "confidence": NOT_NUMBERS,
    "correction": ["", "bonferroni", None, True, 1],
    "records_per_unit": [None, 0, True, "few", []],
    "moments": ["", "all", True, 1],
    "hash": [None, "", "SHA256", "md5", True, 1],
    "coefficients.center": [None, 1, "x", ["x"], {"x": "1"}, {1: 1.0}],
    "coefficients.slopes": [None, 1, "x", ["x"], {"y": 1}, {"y": {"x": "1"}}],
    "drop_limit": [*NOT_NUMBERS, -0.1, 1.1],
    "moments.estimators": NOT_NAMES,
    "moments.errors": NOT_NAMES,
    "expected_units": NOT_WHOLE[1:],
    "moments.bootstrap.replicates": [*NOT_WHOLE, 1, 10**6],
    "moments.bootstrap.weights": [None, "", "normal", 1],
    "privacy.cohort": NOT_WHOLE,
    "privacy.smallest_cell": NOT_WHOLE,
    "privacy.retention": NOT_NUMBERS,
    "federated.mode": [None, "", "Scores", "one message", True, 1],
    "federated.reply_deadline": NOT_NUMBERS,
    "federated.reply_share": NOT_NUMBERS,
    "federated.device_records": NOT_WHOLE,
    "federated.invited": [None, "true", 1, 0.0, [True]],
    "federated.sites": NOT_WHOLE[1:],
    "federated.within_sites": [None, 1, "yes", 0.5],
    "federated.probabilities": [None, 1, "x", ["x"], {"x": 1}, {"x": {"a": "1"}}],
    "federated.joined": [None, 1, "x", ["x"], {"x": 1}, {"x": ["y"]}],
    "federated.servers": [None, 1, "ab", {"a": "b"}],
    "looks.information.units": NOT_WHOLE[1:],
    "looks.information.events": NOT_WHOLE[1:],
    "looks.information.error": [*NOT_NUMBERS[1:], 0, -1],
    "looks.at": [None, 1, "ab", ["a"], [], {"a": 1}],
    "looks.spending": ["", "none", None, 1, ["a"], True],
    "looks.futility": ["", "all", None, 1, ["a"], True],
    "looks.power": [*NOT_NUMBERS, 0.4, 1],
    "release.epsilon": [*NOT_NUMBERS, 0, 21],
    "release.delta": [*NOT_NUMBERS, 0, 0.01],
    "release.unit_records": NOT_WHOLE[1:],
    "release.noisy_groups": NOT_WHOLE,
}


def test_every_setting_is_tried_with_wrong_types() -> None:
    assert set(WRONG_TYPES) | set(APART) == set(EVERY)


def _changed(settings: dict[str, Any], tables: list[str], value: Any) -> dict[str, Any]:
    """The first table, or setting, with the value at the end of the path."""
    name, *inner = tables
    return {name: settings.get(name, {}) | _changed(settings.get(name, {}), inner, value) if inner else value}


@pytest.mark.parametrize("setting", WRONG_TYPES)
def test_a_setting_of_a_wrong_type_is_told_what_it_must_be(setting: str) -> None:
    tables, everything = setting.split("."), {**LOOKED, **CUT, **RELEASED, **CALIBRATED, **FEDERATED, **FULL}
    for value in WRONG_TYPES[setting]:
        written = _changed(everything, tables, value)
        assert faults(**written) == [f"`{setting}` must be {MUST_BE[setting]}."], value


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("value", [True, 1.5, ["x"], (), {"x"}, object(), fa.Privacy, b"scores"])
def test_what_is_no_part_is_told_what_it_must_be(part: str, value: Any) -> None:
    if part == "release" and value == 1.5:
        return  # which is an ε
    said = PARTS[part].SHORT and f"{part}.{PARTS[part].SHORT}"
    assert faults(**{part: value}) == [f"`{said or part}` must be {MUST_BE[said or part]}."]


CUT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"segments": ["y"]}, r"'y' is used more than once \(outcomes, segments\)"),
    ({"segments": ["v"], "cluster": "v"}, r"'v' is used more than once \(cluster, segments\)"),
    ({"segments": ["c", "c"]}, "`segments` has a column twice"),
    ({"segments": ["x"], "covariates": ["x"]}, "the segment 'x' is a covariate without levels"),
    (
        {"strata": {"column": "site", "levels": ["a", "b"]}, "federated": "sums"},
        "`strata` in a federated plan is for sites",
    ),
    (
        {"federated": fa.Federated("sums", sites=2)},
        "`federated.sites` counts sites, which need `unit`",
    ),
    ({"segments": ["c"], "federated": "sums"}, "`segments` in a federated plan are for sites that send sums"),
    (
        {"segments": ["c"], "federated": "sums", "unit": "u"},
        "list the `levels` of the segment 'c': sites do not know each other's",
    ),
    (
        {
            "segments": [{"column": "c", "levels": ["k", "l"]}],
            "strata": {"column": "s", "levels": ["x", "y"]},
            "federated": "sums",
            "unit": "u",
        },
        "cannot be combined with `strata`: leave out `strata`",
    ),
    ({"segments": ["c"], "release": 1.0}, "`segments` cannot be combined with `release`"),
    ({"strata": {"column": "y", "probabilities": {"x": {"a": 0.5, "b": 0.5}}}}, "'y' is used more than once"),
    ({"strata": {"column": "", "probabilities": {"x": {"a": 0.5, "b": 0.5}}}}, "a column without a name"),
    ({"strata": {"column": "s", "probabilities": {}}}, "list the strata of 's' in `strata.levels`"),
    ({"strata": {"column": "s", "levels": []}}, "the levels of 's' must be at least two"),
    (
        {"strata": {"column": "s", "levels": ["x", "y"]}, "segments": [{"column": "s", "levels": ["x", "z"]}]},
        "the levels of 's' are listed in two ways: list them once",
    ),
    (
        {"strata": {"column": "s", "levels": ["x"], "probabilities": {"x": {"a": 0.5, "b": 0.5}}}},
        "has both `levels` and `probabilities`",
    ),
    ({"strata": {"column": "s", "probabilities": {"x": {"a": 0.5, "b": 0.4}}}}, "'x' add up to 0.9 instead of 1"),
    ({"strata": {"column": "s", "probabilities": {"x": {"a": 1.5, "b": -0.5}}}}, "must lie between 0 and 1"),
    (
        {
            "strata": {"column": "s", "levels": [f"s{number}" for number in range(200)]},
            "outcomes": [fa.Survival("days", "gone", until=700, bins=700)],
        },
        "the exits by 'days' would have 560,800 cells",
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), CUT_FAULTS)
def test_segments_and_strata_have_a_sentence_for_each_fault(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(fa.PlanError, match=sentence):
        fa.Plan(**{**SMALL, **settings})


def test_a_part_tells_its_faults_by_itself() -> None:
    with pytest.raises(fa.PlanError, match=r"^`privacy\.cohort` must be a whole number from 1 to 10\^9\.$"):
        fa.Privacy(cohort=0)
    with pytest.raises(fa.PlanError, match=r"^`federated\.mode` must be"):
        fa.Federated("some")  # type: ignore[arg-type]
    with pytest.raises(fa.PlanError, match=r"^`moments\.bootstrap\.weights` must be"):
        Bootstrap(100, "normal")  # type: ignore[arg-type]


def test_all_faults_are_told_at_once() -> None:
    several = {"name": "", "arms": {"a": 0.5, "b": 0.4}, "outcomes": [], "confidence": 2, "expected_units": 0}
    told = faults(**several)
    assert len(told) == 5
    for setting in ("name", "arms", "outcomes", "confidence", "expected_units"):
        assert sum(f"`{setting}`" in sentence for sentence in told) == 1
    inside: dict[str, Any] = {name: dict.fromkeys(settings_of(part), object()) for name, part in PARTS.items()}
    inside["moments"]["bootstrap"] = dict.fromkeys(settings_of(Bootstrap), object())
    inside["looks"]["information"] = dict.fromkeys(settings_of(Information), object())
    wrong_types = {setting: object() for setting in settings_of(fa.Plan)} | inside
    assert set("\n".join(faults(**wrong_types)).splitlines()) == {
        f"`{setting}` must be {phrase}." for setting, phrase in MUST_BE.items() if setting not in APART
    }


def test_what_is_at_the_limit_is_allowed() -> None:
    fa.Plan(**{**SMALL, "name": "n" * 100, "arms": halves(MOST_ARMS), "confidence": 0.5, "expected_units": 1})
    plan = fa.Plan(
        **{
            **SMALL,
            "outcomes": [f"y{i}" for i in range(MOST_COLUMNS - 1)],
            "moments": {"bootstrap": MOST_REPLICATES},
        }
    )
    assert len(plan.columns) == MOST_COLUMNS
    assert fa.Plan(**{**SMALL, "arms": {"a": 1 / 3, "b": 1 / 3, "c": 1 - 2 / 3}}).control == "a"


def test_numpy_makes_plans_too() -> None:
    shares = dict(zip(np.array(["a", "b"]), np.array([0.5, 0.5]), strict=True))
    plan = fa.Plan(**{**SMALL, "arms": shares, "outcomes": np.array(["y"]), "confidence": np.float32(0.5)})
    assert plan == fa.Plan(**{**SMALL, "confidence": 0.5})


def test_python_tells_a_caller_of_missing_and_unknown_arguments() -> None:
    with pytest.raises(TypeError, match="arm"):
        fa.Plan(name="plan")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="outcome"):
        fa.Plan(**SMALL, outcome="y")  # type: ignore[call-arg]
