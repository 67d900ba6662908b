"""The container of effects: the same rows in every form."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.effects import Effect
from foldaway.inference.levels import UNBOUNDED
from foldaway.inference.one_look import FEW
from foldaway.plan.vocabulary import ESTIMATORS
from plans import replaced
from trials import folded, known, make_trial

FIELDS = list(Effect.__struct_fields__)


@pytest.fixture(scope="module")
def effects() -> fa.Effects:
    plan, rows = make_trial(1, n=400, arms=3, outcomes=2, covariates=1, levels=2, units=True)
    return folded(plan, rows).effects()


# A sequence of rows


def test_effects_are_a_sequence_of_rows(effects: fa.Effects) -> None:
    # 2 outcomes, 2 arms against the control. From moments 4 estimators with 5 kinds of error, and HC2 for two of them;
    # from sums 2 estimators with 2 kinds.
    assert len(effects) == len(list(effects)) == 2 * 2 * (4 * 5 + 2 + 2 * 2)
    assert effects[0] is next(iter(effects))
    assert effects[-1] in effects
    assert effects.index(effects[5]) == 5
    with pytest.raises(IndexError):
        effects[len(effects)]


def test_a_slice_is_effects_with_the_same_checks(effects: fa.Effects) -> None:
    part = effects[3:9:2]
    assert isinstance(part, fa.Effects)
    assert list(part) == [effects[3], effects[5], effects[7]]
    assert len(effects[:0]) == 0
    for name in ("trial", "confidence", "counts", "sample_ratio", "dropped", "faults", "notes"):
        assert getattr(part, name) == getattr(effects, name)


def test_a_filter_keeps_the_rows_that_fit_and_their_order(effects: fa.Effects) -> None:
    found = effects.filter(estimator="regression", arm="arm2")
    assert list(found) == [row for row in effects if row.estimator == "regression" and row.arm == "arm2"]
    assert len(found) == 2 * 5
    assert list(effects.filter()) == list(effects)
    with pytest.raises(fa.EstimateError, match=r"no effect has the estimator 'regresion'; there are .*regression"):
        effects.filter(estimator="regresion")
    assert len(effects.filter(estimator="ipw").filter(estimator="regression")) == 0  # the plan has both
    assert len(found.filter(outcome="y1").filter(se_kind="HC1")) == 1


def test_a_field_that_no_effect_has_is_refused(effects: fa.Effects) -> None:
    with pytest.raises(fa.EstimateError, match="an effect has no field estimater, kind"):
        effects.filter(estimater="regression", kind="HC1", arm="arm1")


def test_effects_can_leave_the_process(effects: fa.Effects) -> None:
    again = pickle.loads(pickle.dumps(effects))
    assert list(again) == list(effects)
    assert str(again) == str(effects)


def test_rows_cannot_change(effects: fa.Effects) -> None:
    with pytest.raises(AttributeError):
        effects[0].estimate = 0.0


# Other forms


def test_every_form_has_the_same_rows(effects: fa.Effects) -> None:
    for given in (effects, effects[:0]):
        rows = given.to_dicts()
        assert rows == [{name: getattr(row, name) for name in FIELDS} for row in given]
        assert given.to_arrow().to_pylist() == rows
        assert given.to_polars().to_dicts() == rows
        assert json.loads(given.to_json())["effects"] == rows
        frame: Any = given.to_pandas()
        assert list(frame.columns) == FIELDS
        assert frame.astype(object).where(frame.notna(), None).to_dict("records") == rows


def test_the_types_of_the_arrow_columns_do_not_depend_on_the_rows(effects: fa.Effects) -> None:
    schema = effects.to_arrow().schema
    assert schema.names == FIELDS
    assert schema == effects[:0].to_arrow().schema
    expected = {"arm": pa.string(), "n": pa.int64(), "estimate": pa.float64(), "p_adjusted": pa.float64()}
    assert {name: schema.field(name).type for name in expected} == expected
    assert schema.field("replicates").type == pa.int64()


def test_json_has_the_checks_too(effects: fa.Effects) -> None:
    found = json.loads(effects.to_json())
    assert found["trial"] == effects.trial
    assert found["confidence"] == 0.95
    assert found["counts"] == effects.counts
    assert found["sample_ratio"]["p_value"] == effects.sample_ratio.p_value
    assert found["sample_ratio"]["counted"] == "units"
    assert (found["dropped"], found["faults"], found["notes"]) == ({}, [], list(effects.notes))


def test_json_has_dropped_records_by_arm_column_and_rule() -> None:
    plan, rows = make_trial(2, n=100)
    plan = msgspec.structs.replace(plan, drop_limit=0.05)
    rows.loc[rows.index[rows["group"] == "arm1"][:3], "y0"] = None
    found = json.loads(folded(plan, rows).effects().to_json())
    assert found["dropped"] == {"arm1": 3}
    assert found["faults"] == [{"arm": "arm1", "column": "y0", "rule": "null", "records": 3}]


def test_effects_come_back_from_json(effects: fa.Effects) -> None:
    plan, rows = make_trial(2, n=100, covariates=0)
    plan = replaced(plan, drop_limit=0.05, bootstrap=50)
    rows.loc[rows.index[:3], "y0"] = None
    zeros = little("ab" * 20, [0.0] * 40)  # of which many numbers do not exist
    alarming = little("a" * 80 + "b" * 20, [0.0, 1.0] * 50)
    assert json.loads(alarming.to_json())["alarm"] == alarming.alarm != effects.alarm
    for given in (effects, effects[:0], folded(plan, rows).effects(), zeros, alarming):
        for text in (given.to_json(), given.to_json().encode()):
            again = fa.Effects.from_json(text)
            assert again.to_json() == given.to_json()
            assert again.rows == given.rows
            assert (again.faults, again.dropped, again.notes) == (given.faults, given.dropped, given.notes)
            assert (again.sample_ratio, again.alarm) == (given.sample_ratio, given.alarm)
            assert str(again) == str(given)


def strict(text: str) -> Any:
    """JSON as the standard has it, without NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


# Trials that have little to say: a reason, and neither a crash nor a warning of NumPy's.

PLAN = fa.Plan(
    name="little", arm="g", arms={"a": 0.5, "b": 0.5}, moments=fa.Moments(), outcomes=["y"], covariates=["x"]
)


def little(groups: str, y: list[float], plan: fa.Plan = PLAN) -> fa.Effects:
    trial = fa.Trial(plan)
    x = np.random.default_rng(1).normal(size=len(y)).tolist()
    columns = {"g": list(groups), "y": y, "x": x, "u": [f"u{i}" for i in range(len(y))]}
    trial.fold({name: values for name, values in columns.items() if y})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        effects = trial.effects()
        strict(effects.to_json())
        for everything in (False, True):
            assert effects.to_string(all=everything)
            assert effects.to_html(all=everything)
        effects.to_pandas(), effects.to_polars(), effects.to_arrow()
    return effects


@pytest.mark.parametrize("groups", ["", "a", "b", "aaaa", "bb"])
def test_an_arm_without_records_is_told_in_every_row(groups: str) -> None:
    effects = little(groups, [float(i) for i in range(len(groups))])
    reasons = {row.why for row in effects if row.estimator != "adjusted"}
    assert reasons == {"An arm has no records yet."} | ({"There are no records yet."} if not groups else set())
    assert all(row.estimate is None for row in effects)
    for text in (str(effects), effects.to_html()):
        assert text.count("no records") + text.count("so far there are fewer") == 1


def test_one_record_per_arm_has_an_effect_and_no_error() -> None:
    rows = little("ab", [1.0, 2.0]).filter(estimator="difference")
    assert [row.estimate for row in rows] == [pytest.approx(1.0)] * 5
    assert {row.reliable for row in rows} == {False}
    assert all(row.why is not None and "record" in row.why for row in rows)


@pytest.mark.parametrize("level", [3.0, 0.1, -1e6])
def test_an_outcome_without_variance(level: float) -> None:
    effects = little("ab" * 20, [level] * 40)
    rows = effects.filter(estimator="difference")
    assert len(rows) == 5
    for row in rows:
        assert row.estimate == pytest.approx(0, abs=1e-9 * abs(level))
        assert (row.std_error, row.reliable) == (None, False)
        assert row.why == "All records of an arm have the same value of this outcome, so it has no standard error."


def test_an_outcome_of_zeros() -> None:
    effects = little("ab" * 20, [0.0] * 40)
    for row in effects:
        assert row.estimate == 0
        assert (row.std_error, row.p_value, row.relative) == (None, None, None)
    assert "-0.0" not in str(effects)
    rows = strict(effects.to_json())["effects"]
    assert all(row["p_value"] is None and row["relative"] is None for row in rows)
    assert any(row.se_kind == "HC2" for row in effects)


@pytest.mark.parametrize("away", [0.0, 1.0])
def test_a_control_at_zero_has_no_relative_effect(away: float) -> None:
    """A control of zeros, and one whose mean is 0; that none of it carries the outcome is what sums then say first."""
    effects = little("ab" * 40, [away, 1.0, -away, 2.0] * 20)
    rows = effects.filter(estimator="difference")
    assert len(rows) == 5
    for row in rows:
        assert row.estimate == pytest.approx(1.5)
        assert known(row.std_error) > 0
        assert row.reliable
        assert (row.relative, row.relative_ci_lower) == (None, None)
        why = FEW if away == 0 and row.se_kind == "welch" else UNBOUNDED
        assert row.relative_why == why[0].upper() + why[1:]
    assert strict(effects.to_json())["effects"][0]["relative"] is None


@pytest.mark.parametrize(("units", "told"), [(1, ()), (4, ("difference", "ipw")), (5, (*ESTIMATORS,))])
def test_errors_by_unit_take_two_units_in_each_arm_of_means_and_five_of_others(units: int, told: Sequence[str]) -> None:
    estimators = ["difference", "ipw", "horvitz_thompson"]
    plan = replaced(PLAN, unit="u", records_per_unit="together", estimators=estimators)
    effects = little("a" * 30 + "b" * units, [float(i % 7) for i in range(30 + units)], plan)
    for row in effects.filter(se_kind="CR1"):
        assert row.reliable is (row.estimator in told)
        least = 5 if row.estimator == "horvitz_thompson" else 2
        assert row.reliable or row.why == f"Errors by unit need {least} units in each arm; an arm has {units}."
    assert all(row.reliable for row in effects.filter(se_kind="HC1"))


# How it introduces itself


def test_effects_print_themselves(effects: fa.Effects) -> None:
    assert repr(effects) == f"Effects: random-1 | n=400 | rows={len(effects)}"
    assert str(effects) == effects.to_string()
    assert effects._repr_html_() == effects.to_html()


# What was asked goes along


def test_effects_know_their_plan(effects: fa.Effects) -> None:
    plan, _ = make_trial(1, n=400, arms=3, outcomes=2, covariates=1, levels=2, units=True)
    assert effects.plan == plan
    some = effects[2:5].filter(arm="arm1")
    again = fa.Effects.from_json(some.to_json())
    for given in (some, again):
        assert given.plan is not None
        assert given.plan.fingerprint == plan.fingerprint
    assert json.loads(effects.to_json())["plan"] == json.loads(plan.canonical())


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_an_export_without_its_package_says_what_to_install(effects: fa.Effects, package: str) -> None:
    program = (
        "import sys\nclass Absent:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {package!r}: raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Absent())\nimport foldaway as fa\n"
        "effects = fa.Effects.from_json(sys.stdin.read())\n"
        f"try: effects.to_{package}()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=effects.to_json(), capture_output=True, text=True)
    assert f"{package} is not installed: pip install 'foldaway[{package}]'" in done.stdout, done.stderr
