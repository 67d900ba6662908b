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
from fuzzing import fuzz
from plans import FEDERATED, FULL, SMALL, plans

SUFFIXES = (".toml", ".json")


# Round trips


@fuzz(max_examples=60)
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
    settings["levels"]["country"].append("us")
    assert plan.canonical() == before


# Equality and fingerprint

OTHER: dict[str, Any] = {
    "name": "other",
    "arm": "other",
    "arms": {"control": 0.2, "gold": 0.4, "silver": 0.4},
    "outcomes": ["converted", "revenue"],
    "covariates": ["age", "country", "plan"],
    "levels": {"country": ["de", "us", "fr"], "plan": ["free", "paid"]},
    "unit": "ward",
    "weight": "v",
    "confidence": 0.900000001,
    "complete_units": False,
    "on_fault": "refuse",
    "estimators": ["regression", "difference"],
    "errors": ["HC1", "classical"],
    "anytime_n": 5001,
    "bootstrap": {"replicates": 200, "weights": "poisson"},
    "cohort": 51,
    "max_wait": 60.6,
    "min_per_arm": 21,
    "remainder": "leave_out",
}

OTHER_FEDERATED: dict[str, Any] = {
    "federated": "one-message",
    "reply_deadline": 60.6,
    "reply_share": 0.91,
    "retention": 3600.6,
    "leverage": "CR3",
}


def test_every_setting_is_tried_below() -> None:
    assert set(OTHER) == set(FULL)
    assert set(OTHER) | set(OTHER_FEDERATED) == set(FULL) | set(FEDERATED) == set(fa.Plan.__struct_fields__)


@pytest.mark.parametrize("setting", OTHER_FEDERATED)
def test_a_changed_setting_of_a_federated_plan_changes_the_fingerprint(setting: str) -> None:
    without = ("leverage",) if setting == "federated" else ()
    settings = {name: value for name, value in FEDERATED.items() if name not in without}
    other = fa.Plan(**{**settings, setting: OTHER_FEDERATED[setting]})
    assert fa.Plan(**settings).fingerprint != other.fingerprint
    assert fa.Plan.loads(other.to_toml()) == other


@pytest.mark.parametrize("setting", OTHER)
def test_a_changed_setting_changes_the_fingerprint(setting: str) -> None:
    plan, other = fa.Plan(**FULL), fa.Plan(**{**FULL, setting: OTHER[setting]})
    assert plan != other
    assert plan.fingerprint != other.fingerprint
    if setting in SMALL:
        return
    less = {name: value for name, value in FULL.items() if name != setting}
    if setting == "covariates":
        del less["levels"], less["estimators"]
    if setting == "unit":
        del less["complete_units"]
    assert fa.Plan(**less).fingerprint != plan.fingerprint


def test_the_order_of_arms_counts_since_the_first_is_the_control() -> None:
    plan = fa.Plan(**{**SMALL, "arms": {"a": 0.5, "b": 0.5}})
    turned = fa.Plan(**{**SMALL, "arms": {"b": 0.5, "a": 0.5}})
    assert (plan.control, turned.control) == ("a", "b")
    assert plan != turned
    assert plan.fingerprint != turned.fingerprint
    with pytest.raises(fa.StateError):
        fa.Trial(plan).merge(fa.Trial(turned))


def test_the_order_in_which_levels_names_its_covariates_does_not_count() -> None:
    turned = {**FULL, "levels": dict(reversed(FULL["levels"].items()))}
    assert list(turned["levels"]) != list(FULL["levels"])
    assert fa.Plan(**turned) == fa.Plan(**FULL)
    assert fa.Plan(**turned).fingerprint == fa.Plan(**FULL).fingerprint


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
        "levels": {},
        "unit": None,
        "weight": None,
        "confidence": 0.95,
        "complete_units": False,
        "on_fault": "refuse",
        "estimators": [],
        "anytime_n": 10000,
        "bootstrap": None,
        "cohort": 100,
        "max_wait": None,
        "min_per_arm": 10,
        "remainder": "leave_out",
        "federated": None,
        "reply_deadline": 3600,
        "reply_share": 1,
        "retention": 30 * 86_400,
        "leverage": None,
    }
    added = {name: value for name, value in defaults.items() if name not in written and data.draw(st.booleans())}
    again = fa.Plan.loads(json.dumps(written | added))
    assert again == plan
    assert again.fingerprint == plan.fingerprint


def test_the_fingerprint_is_the_sha_256_of_the_documented_form() -> None:
    """Recomputed without foldaway: JSON, UTF-8, no blanks, declared order, defaults left out, levels by name."""
    plan = fa.Plan(**{**FULL, "confidence": 0.95, "arm": "größe"})
    form = {name: value for name, value in {**FULL, "arm": "größe"}.items() if name != "confidence"}
    form["levels"] = {name: FULL["levels"][name] for name in sorted(FULL["levels"])}
    text = json.dumps(form, separators=(",", ":"), ensure_ascii=False)
    assert plan.fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_numbers_of_one_value_are_one_setting() -> None:
    whole = {**SMALL, "arms": {"a": np.float64(0.5), "b": 0.5}, "bootstrap": 300}
    spelled = {**SMALL, "arms": {"a": 0.5, "b": 1 / 2}, "bootstrap": fa.Bootstrap(300, "poisson")}
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


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.9), (0.2, 0.3, 0.5), (0.05, 0.15, 0.3, 0.5)])
def test_units_are_assigned_in_the_plans_proportions(shares: tuple[float, ...]) -> None:
    arms = {f"arm{i}": share for i, share in enumerate(shares)}
    plan = fa.Plan(**{**SMALL, "arms": arms})
    assigned = [plan.assign(unit) for unit in range(100_000)]
    counts = [assigned.count(arm) for arm in arms]
    assert sum(counts) == 100_000
    assert stats.chisquare(counts, [100_000 * share for share in shares]).pvalue > 1e-3


def test_assignments_are_independent_between_plans_and_between_like_units() -> None:
    plan, other = fa.Plan(**SMALL), fa.Plan(**{**SMALL, "name": "small-2"})
    units = [f"user-{i}" for i in range(20_000)]
    first, second = [plan.assign(u) for u in units], [other.assign(u) for u in units]
    for left, right in ((first, second), (first[:-1], first[1:])):
        table = [[sum(pair == (a, b) for pair in zip(left, right, strict=True)) for b in "ab"] for a in "ab"]
        assert stats.chi2_contingency(table, correction=False).pvalue > 1e-3


def test_an_assignment_never_changes() -> None:
    """By BLAKE2b as documented, recomputed with the standard library."""
    plan = fa.Plan(**FULL)
    key = hashlib.sha256(plan.canonical()).digest()
    for unit in ("user-17", "", "größe", "x" * 1000):
        digest = hashlib.blake2b(unit.encode(), digest_size=8, key=key, person=b"foldaway-assign").digest()
        uniform = int.from_bytes(digest, "little") / 2**64
        expected = "control" if uniform < 0.2 else "gold" if uniform < 0.5 else "silver"
        assert plan.assign(unit) == fa.Plan.loads(plan.to_toml()).assign(unit) == expected


@fuzz(max_examples=100)
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
        with pytest.raises(TypeError, match=r"^a unit is named by text, a whole number or bytes$"):
            fa.Plan(**SMALL).assign(unit)
