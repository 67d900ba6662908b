"""A plan: what it says is fixed, comes back from every form, and has one fingerprint."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import foldaway as fa
from foldaway.plan import Bootstrap, Estimand, Flow
from fuzzing import fuzz
from plans import CALIBRATED, CUT, FEDERATED, FULL, LOOKED, PARTS, RELEASED, SHARED, SMALL, plans

SUFFIXES = (".toml", ".json")


# Round trips


@fuzz(max_examples=25)
@given(plans())
def test_every_plan_comes_back_from_toml_and_json(plan: fa.Plan) -> None:
    for text in (plan.to_toml(), plan.to_json(), plan.canonical().decode()):
        again = fa.Plan.loads(text)
        assert again == plan
        assert again.fingerprint == plan.fingerprint
        assert list(again.arms) == list(plan.arms)
        assert again.columns == plan.columns


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".TOML", ".Json"])
def test_a_plan_comes_back_from_its_file(tmp_path: Path, suffix: str) -> None:
    for plan in (fa.Plan(**SMALL), fa.Plan(**FULL)):
        file = tmp_path / f"plan{suffix}"
        plan.save(file)
        assert fa.Plan.load(file) == fa.Plan.load(str(file)) == plan


def test_a_saved_plan_is_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    plan = fa.Plan(**FULL)
    plan.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["arms"] == FULL["arms"]
    plan.save(tmp_path / "plan.toml")
    with pytest.raises(json.JSONDecodeError):
        json.loads((tmp_path / "plan.toml").read_text())


@pytest.mark.parametrize("name", ["plan", "plan.yaml", "plan.toml.txt"])
def test_a_plan_is_not_saved_in_a_format_it_could_not_be_read_from(tmp_path: Path, name: str) -> None:
    with pytest.raises(fa.PlanError, match=r"\.toml or \.json"):
        fa.Plan(**SMALL).save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_plan_can_be_copied_pickled_and_varied() -> None:
    plan = fa.Plan(**FULL)
    twin: Any
    for twin in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert twin == plan
        assert hash(twin) == hash(plan)
        with pytest.raises(TypeError):
            twin.arms["control"] = 0.1
    assert msgspec.structs.replace(plan, confidence=0.9) == fa.Plan(**{**FULL, "confidence": 0.9})


# Immutability


def test_no_part_of_a_plan_can_change() -> None:
    plan: Any = fa.Plan(**FULL)
    before = plan.canonical()
    changes: list[Any] = [
        lambda: setattr(plan, "name", "other"),
        lambda: delattr(plan, "name"),
        lambda: plan.arms.__setitem__("control", 0.1),
        lambda: plan.arms.__delitem__("control"),
        lambda: plan.arms.update(control=0.1),
        lambda: plan.arms.__ior__({"control": 0.1}),
        lambda: plan.arms.setdefault("new", 0.1),
        lambda: plan.arms.pop("control"),
        lambda: plan.arms.popitem(),
        lambda: plan.arms.clear(),
        lambda: plan.levels.__setitem__("country", ("de",)),
        lambda: plan.levels["country"].append("us"),
        lambda: plan.levels["country"].__setitem__(0, "us"),
        lambda: plan.outcomes.append("other"),
        lambda: plan.covariates.__setitem__(0, "other"),
        lambda: setattr(plan.bootstrap, "replicates", 3),
        lambda: setattr(plan.privacy, "cohort", 3),
        lambda: setattr(plan, "privacy", fa.Privacy(cohort=3)),
    ]
    for change in changes:
        with pytest.raises((TypeError, AttributeError)):
            change()
    assert plan.canonical() == before


def test_a_plan_keeps_no_hold_on_what_it_was_made_from() -> None:
    settings: dict[str, Any] = copy.deepcopy(FULL)
    plan = fa.Plan(**settings)
    before = plan.canonical()
    settings["arms"]["control"] = 0.1
    settings["outcomes"].append("other")
    settings["covariates"][0]["levels"].append("pro")
    assert plan.canonical() == before


# Equality and fingerprint

OTHER: dict[str, Any] = {
    "name": "other",
    "arm": "other",
    "arms": {"control": 0.2, "gold": 0.4, "silver": 0.4},
    "outcomes": ["converted", "revenue"],
    "covariates": [
        "age",
        {"column": "country", "levels": ["de", "us", "fr"]},
        {"column": "plan", "levels": ["free", "paid"]},
    ],
    "baseline": ["age"],
    "unit": "ward",
    "weight": "v",
    "confidence": 0.900000001,
    "correction": "none",
    "records_per_unit": "many",
    "moments": {
        "estimators": ["regression", "difference"],
        "errors": ["HC1", "classical"],
        "bootstrap": {"replicates": 200, "weights": "poisson"},
    },
    "expected_units": 5001,
    "hash": "siphash",
    "drop_limit": 0.2,
    "privacy": {"cohort": 51, "smallest_cell": 20},
}

OTHER_IN_PARTS: dict[str, Any] = {
    "privacy": {"cohort": 51, "smallest_cell": 21, "retention": 3600.6},
    "federated": {
        "mode": "one-message",
        "reply_deadline": 60.6,
        "reply_share": 0.91,
        "device_records": 51,
        "invited": True,
        "sites": 3,
        "within_sites": False,
        "probabilities": {"Aarhus": {"a": 0.4, "b": 0.6}},
        "joined": {"Aarhus": "Bergen"},
        "servers": [{"url": "https://z.example", "key": "B" + 86 * "x" + "="}, SHARED["federated"]["servers"][1]],
    },
    "release": {"epsilon": 0.5, "delta": 1e-6, "unit_records": 6, "noisy_groups": 64},
    "moments": {
        "estimators": ["regression"],
        "errors": ["HC1"],
        "bootstrap": {"replicates": 200, "weights": "poisson"},
    },
    "looks": {
        "information": {"units": 901},
        "at": [0.4, 1.0],
        "spending": "pocock",
        "futility": "pocock",
        "power": 0.9,
    },
    "estimand": {
        "population": "adults",
        "treatment": "drug",
        "intercurrent_events": "treatment policy",
        "summary": "s",
    },
    "flow": {"assessed": 901, "excluded": {"declined": 3}},
    "strata": {"column": "place", "probabilities": {"x": {"a": 0.5, "b": 0.5}}, "levels": ["x", "y"]},
    "coefficients": {"center": {"x": 0.6}, "slopes": {"y": {"x": 2.6}, "z": {"x": 0.5}}},
}
BASES = {
    "estimand": SMALL,
    "flow": SMALL,
    "moments": FULL,
    "coefficients": CALIBRATED,
    "release": RELEASED,
    "strata": CUT,
    "looks": LOOKED,
}
OF_SITES = ("sites", "within_sites", "probabilities", "joined")
IN_PARTS = [(part, setting) for part, settings in OTHER_IN_PARTS.items() for setting in settings]


def test_every_setting_is_tried_below() -> None:
    assert set(OTHER) == set(FULL)
    assert set(OTHER) | set(OTHER_IN_PARTS) | set(CALIBRATED) | set(CUT) == set(fa.Plan.__struct_fields__)
    parts = {
        "coefficients": fa.Coefficients,
        "moments": fa.Moments,
        "strata": fa.Strata,
        "privacy": fa.Privacy,
        "looks": fa.Looks,
        "estimand": Estimand,
        "flow": Flow,
        "federated": fa.Federated,
        "release": fa.Release,
    }
    assert parts == PARTS
    assert {part: set(settings) for part, settings in OTHER_IN_PARTS.items()} == {
        name: set(part.__struct_fields__) for name, part in parts.items()
    }


@pytest.mark.parametrize(("part", "setting"), IN_PARTS)
def test_a_changed_setting_in_a_part_changes_the_fingerprint(part: str, setting: str) -> None:
    base = BASES.get(part, FEDERATED)
    settings: dict[str, Any] = dict(base.get(part, {}))
    if part == "federated" and setting in OF_SITES:  # of which only plans for sites can have some
        base, settings = {**base, "unit": "place", "covariates": []}, {"mode": "sums"}
    if setting == "invited":  # which not every mode can have
        settings = {"mode": "one-message"}
    if setting == "servers":
        base, settings = SHARED, SHARED["federated"]
    plan = fa.Plan(**{**base, part: settings})
    if setting == "levels":
        del settings["probabilities"]
    other = fa.Plan(**{**base, part: settings | {setting: OTHER_IN_PARTS[part][setting]}})
    assert plan.fingerprint != other.fingerprint
    assert fa.Plan.loads(other.to_toml()) == other
    assert fa.Plan.loads(other.to_json()) == other


def test_strata_of_which_only_the_column_is_said_have_the_arms_probabilities() -> None:
    base: dict[str, Any] = {
        "name": "d",
        "arm": "g",
        "arms": {"a": 0.4, "b": 0.6},
        "outcomes": ["y"],
        "covariates": ["x"],
    }
    whole = fa.Strata("site", {site: {"a": 0.4, "b": 0.6} for site in ("north", "south")})
    written = fa.Plan(**base, strata=whole)
    site: dict[str, Any] = {"column": "site", "levels": ["north", "south"]}
    assert fa.Plan(**base, strata=site).fingerprint == written.fingerprint
    assert fa.Plan(**{**base, "covariates": ["x", site]}, strata="site") == written
    segmented = fa.Plan(**base, segments=[site], strata="site")
    assert segmented == fa.Plan(**base, segments=["site"], strata=whole)
    assert segmented.levels_of("site") == ("north", "south")
    assert fa.Plan.loads(written.to_toml()) == written


def test_bounds_of_outcomes_and_covariates_are_those_of_their_columns() -> None:
    plan = fa.Plan(**CALIBRATED)
    assert plan.bounds == {"x": (0.0, 1.0), "y": (0.0, 500.0)}
    assert fa.Plan.loads(plan.to_toml()) == fa.Plan.loads(plan.to_json()) == plan
    for other in ({"bounds": [0, 501]}, {"beyond": "clip"}):
        outcomes = [CALIBRATED["outcomes"][0] | other, CALIBRATED["outcomes"][1]]
        assert fa.Plan(**{**CALIBRATED, "outcomes": outcomes}).fingerprint != plan.fingerprint
    rate = fa.Ratio("clicks", "views", bounds={"clicks": (0, 10)}, beyond="refuse")
    assert fa.Plan(**{**SMALL, "outcomes": ["clicks", rate]}).limits == {"clicks": ((0, 10), "refuse")}


# The ways to write a part

WAYS: dict[str, list[Any]] = {
    "moments": [{"bootstrap": each} for each in (500, {"replicates": 500, "weights": "poisson"}, Bootstrap(500))],
    "federated": ["scores", {"mode": "scores", "reply_share": 1}, fa.Federated("scores"), {"mode": "scores"}],
    "privacy": [{"cohort": 50}, {"cohort": 50, "smallest_cell": 10}, fa.Privacy(cohort=50), {"cohort": np.int64(50)}],
}


@pytest.mark.parametrize("part", WAYS)
def test_a_part_is_one_setting_however_it_is_written(part: str) -> None:
    plans = [fa.Plan(**{**SMALL, part: written}) for written in WAYS[part]]
    assert {type(getattr(plan, part)) for plan in plans} == {PARTS[part]}
    assert len({plan.fingerprint for plan in plans}) == 1
    assert len(set(plans)) == 1
    for text in (json.dumps({**SMALL, part: WAYS[part][0]}), plans[0].to_toml(), plans[0].to_json()):
        assert fa.Plan.loads(text) == plans[0]


def test_the_short_forms_are_toml_too() -> None:
    small = fa.Plan(**SMALL).to_toml()
    assert fa.Plan.loads(f"{small}\n[moments]\nbootstrap = 500\n").bootstrap == Bootstrap(500)
    assert fa.Plan.loads(f'federated = "delta"\n{small}').federated == fa.Federated("delta")


@pytest.mark.parametrize("written", [{}, {"cohort": 100}, fa.Privacy(), fa.Privacy(retention=2_592_000)])
def test_a_part_of_nothing_but_defaults_stays_out(written: Any) -> None:
    plan = fa.Plan(**SMALL, privacy=written)
    assert plan.canonical() == fa.Plan(**SMALL).canonical()
    assert "privacy" not in plan.to_toml()


@pytest.mark.parametrize("setting", OTHER)
def test_a_changed_setting_changes_the_fingerprint(setting: str) -> None:
    plan, other = fa.Plan(**FULL), fa.Plan(**{**FULL, setting: OTHER[setting]})
    assert plan != other
    assert plan.fingerprint != other.fingerprint
    if setting in SMALL:
        return
    less = {name: value for name, value in FULL.items() if name != setting}
    if setting == "covariates":
        del less["moments"]
    if setting == "unit":
        del less["records_per_unit"]
    assert fa.Plan(**less).fingerprint != plan.fingerprint


def test_the_order_of_arms_counts_since_the_first_is_the_control() -> None:
    plan = fa.Plan(**{**SMALL, "arms": {"a": 0.5, "b": 0.5}})
    turned = fa.Plan(**{**SMALL, "arms": {"b": 0.5, "a": 0.5}})
    assert (plan.control, turned.control) == ("a", "b")
    assert plan != turned
    assert plan.fingerprint != turned.fingerprint
    with pytest.raises(fa.StateError):
        fa.Trial(plan).merge(fa.Trial(turned))


def test_levels_listed_at_one_place_hold_for_their_column_everywhere() -> None:
    bare, listed = ["country"], [{"column": "country", "levels": ["de", "fr"]}]
    written = [
        fa.Plan(**SMALL, covariates=a, segments=b) for a, b in ((bare, listed), (listed, bare), (listed, listed))
    ]
    assert len({plan.fingerprint for plan in written}) == 1
    assert written[0].levels_of("country") == ("de", "fr")


@fuzz(max_examples=30)
@given(plans(), st.randoms(use_true_random=False))
def test_the_order_of_settings_in_a_file_does_not_count(plan: fa.Plan, shuffler: random.Random) -> None:
    items = list(json.loads(plan.to_json()).items())
    shuffler.shuffle(items)
    again = fa.Plan.loads(json.dumps(dict(items)))
    assert again.fingerprint == plan.fingerprint


@fuzz(max_examples=30)
@given(plans(), st.data())
def test_settings_at_their_default_do_not_count(plan: fa.Plan, data: st.DataObject) -> None:
    """However the default is written: parsed anew it is another object of the same value."""
    written = json.loads(plan.to_json())
    defaults: dict[str, Any] = {
        "covariates": [],
        "unit": None,
        "weight": None,
        "confidence": 0.95,
        "correction": "holm",
        "records_per_unit": "many",
        "moments": None,
        "expected_units": None,
        "hash": "siphash",
        "coefficients": None,
        "drop_limit": 0,
        "federated": None,
    }
    in_parts: dict[str, dict[str, Any]] = {
        "privacy": {"cohort": 100, "smallest_cell": 10, "retention": 30 * 86_400},
        "federated": {"reply_deadline": 3600, "reply_share": 1},
        "moments": {"estimators": [], "errors": [], "bootstrap": None},
    }
    drawn = data.draw(st.sets(st.sampled_from([*defaults, *(name for part in in_parts.values() for name in part)])))
    added = {name: value for name, value in defaults.items() if name not in written and name in drawn}
    for part, settings in in_parts.items():
        if part in written or part == "privacy":
            added[part] = {name: value for name, value in settings.items() if name in drawn} | written.get(part, {})
    again = fa.Plan.loads(json.dumps(written | added))
    assert again == plan
    assert again.fingerprint == plan.fingerprint


def test_the_fingerprint_is_the_sha_256_of_the_documented_form() -> None:
    """Recomputed without foldaway: JSON, UTF-8, no blanks, declared order, defaults left out."""
    plan = fa.Plan(**{**FULL, "confidence": 0.95, "arm": "größe"})
    form = {name: value for name, value in {**FULL, "arm": "größe"}.items() if name != "confidence"}
    text = json.dumps(form, separators=(",", ":"), ensure_ascii=False)
    assert plan.fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_numbers_of_one_value_are_one_setting() -> None:
    whole = {**SMALL, "arms": {"a": np.float64(0.5), "b": 0.5}, "moments": {"bootstrap": 300}}
    spelled = {**SMALL, "arms": {"a": 0.5, "b": 1 / 2}, "moments": {"bootstrap": Bootstrap(300, "poisson")}}
    assert fa.Plan(**whole).fingerprint == fa.Plan(**spelled).fingerprint


def test_a_plan_equals_nothing_else() -> None:
    plan = fa.Plan(**SMALL)
    assert plan != plan.canonical()
    assert plan != json.loads(plan.to_json())
    assert len({plan, fa.Plan(**SMALL), fa.Plan(**FULL)}) == 2


# Columns


def test_columns_are_the_intercept_covariates_with_all_levels_but_the_first_and_outcomes() -> None:
    plan = fa.Plan(**FULL)
    assert plan.columns == ("1", "plan[paid]", "age", "country[fr]", "country[us]", "revenue", "converted")
    assert plan.regressors == plan.columns[:5]


# Assignment


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.05, 0.15, 0.3, 0.5)])
def test_units_are_assigned_in_the_plans_proportions(shares: tuple[float, ...]) -> None:
    arms = {f"arm{i}": share for i, share in enumerate(shares)}
    plan = fa.Plan(**{**SMALL, "arms": arms})
    assigned = [plan.assign(unit) for unit in range(40_000)]
    counts = [assigned.count(arm) for arm in arms]
    assert sum(counts) == 40_000
    assert stats.chisquare(counts, [40_000 * share for share in shares]).pvalue > 1e-3


def test_assignments_are_independent_between_plans_and_between_like_units() -> None:
    plan, other = fa.Plan(**SMALL), fa.Plan(**{**SMALL, "name": "small-2"})
    units = [f"user-{i}" for i in range(20_000)]
    first, second = [plan.assign(u) for u in units], [other.assign(u) for u in units]
    for left, right in ((first, second), (first[:-1], first[1:])):
        table = [[sum(pair == (a, b) for pair in zip(left, right, strict=True)) for b in "ab"] for a in "ab"]
        assert stats.chi2_contingency(table, correction=False).pvalue > 1e-3


def test_a_public_arm_is_the_one_that_its_documentation_gives() -> None:
    """Computed from the steps in docs/arms.md, in whole numbers: u < p is h < p·16^13."""
    plan = fa.Plan(**FULL)
    design = [plan.name, plan.arm, [[arm, share] for arm, share in FULL["arms"].items()], plan.unit]
    key = hashlib.sha256(json.dumps(design, separators=(",", ":")).encode()).hexdigest()
    for unit in ("user-17", "", "größe", "x" * 1000, *map(str, range(200))):
        message = b"foldaway arm\n" + key.encode() + b"\n" + unit.encode()
        number = int.from_bytes(hashlib.sha256(message).digest()[:7], "big") >> 4
        expected = "control" if 5 * number < 2**52 else "gold" if 2 * number < 2**52 else "silver"
        assert plan.assign(unit) == fa.Plan.loads(plan.to_toml()).assign(unit) == expected


@fuzz(max_examples=50)
@given(st.integers(-(10**30), 10**30))
def test_a_number_its_text_and_its_bytes_are_the_same_unit(number: int) -> None:
    plan = fa.Plan(**SMALL)
    assert plan.assign(number) == plan.assign(str(number)) == plan.assign(str(number).encode())


def test_any_text_and_any_integer_type_can_be_assigned() -> None:
    plan = fa.Plan(**SMALL)
    assert plan.assign("\ud800 half a character") in plan.arms
    assert all(plan.assign(kind(17)) == plan.assign(17) for kind in (np.int8, np.uint64, np.int64))  # type: ignore[arg-type]


def test_what_names_no_unit_is_refused_without_being_quoted() -> None:
    nothing: list[Any] = [None, True, np.bool_(True), 1.0, 1.5, ["u"], ("u",), {}, object()]
    for unit in nothing:
        with pytest.raises(TypeError, match=r"^a unit must be text, a whole number or bytes$"):
            fa.Plan(**SMALL).assign(unit)
